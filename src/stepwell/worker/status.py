"""What a worker is doing at this moment, for metrics and health checks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """What a worker is doing at this moment."""

    worker_id: str | None
    """The id under which it is registered; None: it holds no lease."""
    slots: int
    running: int
    """The jobs that run. A batch of jobs takes one slot."""
    unstarted: int
    """The jobs that it has claimed and that wait for a slot or for their batch."""
    unwritten: int
    """The outcomes that are not yet written."""
    lease_left: float
    """For how many seconds its lease is valid, if it is not renewed; 0: it holds none."""
    hears: bool
    """Whether notifications arrive."""
    leads: bool
    stopping: bool
