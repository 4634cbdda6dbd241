"""Why a job does not run, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias
from uuid import UUID

from stepwell.values.duration import local_time

Cause: TypeAlias = Literal[
    "delay", "retry", "snooze", "misfit", "sleep", "event", "signal", "child", "group", "overlap", "limit", "rate",
    "paused", "no_worker", "no_worker_for_task", "no_worker_for_queue", "no_worker_for_owner", "busy", "ready",
    "running", "ended", "unique", "not_found",
]  # fmt: skip
"""The cause in a word."""


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job has not ended yet: the first of what must happen before it runs."""

    cause: Cause
    subject: str
    """The cause in words, with names: which queue is paused, which limit, which event."""
    next_act: str
    """What a person can do about it."""
    until: datetime | None = None
    """When the cause ends by itself, at the earliest; None: not known."""
    jobs: tuple[UUID, ...] = ()
    """Up to three jobs that it waits for: those that hold a limit or its unique key, a child, members of its
    group, an earlier run of its schedule."""

    def __str__(self) -> str:
        until = "" if self.until is None else f" (waits until {local_time(self.until)})"
        return f"{self.subject}{until}; {self.next_act}"
