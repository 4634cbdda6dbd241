"""Jobs in a table: in any state, or only running ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from stepwell.cli.output import Column, ago, compact, table
from stepwell.values.duration import describe, local_time
from stepwell.values.job import JobInfo


def print_jobs(jobs: Sequence[JobInfo], now: datetime) -> None:
    _print(
        jobs,
        lambda job: job.state,
        Column("enqueued", lambda job: ago(job.enqueued_at, now)),
        Column("due", lambda job: ago(job.run_at, now) if job.state in ("scheduled", "waiting") else ""),
        Column("error", lambda job: job.error, cut=True),
    )


def print_running(jobs: Sequence[JobInfo], now: datetime) -> None:
    """Print running jobs: since when, for how long, on which worker, and their last progress."""
    _print(
        jobs,
        lambda job: "cancelling" if job.cancelling else "undoing" if job.undoing else job.state,
        Column("since", lambda job: local_time(job.claimed_at)),
        Column("for", lambda job: _running_for(job, now), right=True),
        Column("worker", lambda job: job.worker_id),
        Column("progress", lambda job: None if job.progress is None else compact(job.progress), cut=True),
    )


def _print(jobs: Sequence[JobInfo], state: Callable[[JobInfo], str], *more: Column[JobInfo]) -> None:
    owner: Column[JobInfo] = Column("owner", lambda job: job.owner or "-", cut=True)
    table(
        jobs,
        [
            Column("id", lambda job: job.id),
            Column("state", state),
            Column("task", lambda job: job.task, cut=True),
            Column("queue", lambda job: job.queue, cut=True),
            *([owner] if any(job.owner is not None for job in jobs) else []),
            Column("attempt", lambda job: job.attempt, right=True),
            *more,
        ],
        empty="no job matches",
    )


def _running_for(job: JobInfo, now: datetime) -> str:
    return "" if job.claimed_at is None else describe(max((now - job.claimed_at).total_seconds(), 0))
