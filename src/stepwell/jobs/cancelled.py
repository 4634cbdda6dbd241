"""Tell subscribers which jobs a call has cancelled."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.postgres.queries.jobs import CancelledJob
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.enqueue import CancelAsked


def tell_cancelled(events: EventBus, jobs: Sequence[CancelledJob], reason: str | None) -> None:
    if events.wanted(CancelAsked):
        for job in jobs:
            events.emit(CancelAsked(job.id, job.task, job.queue, job.attempt, job.state, reason))
