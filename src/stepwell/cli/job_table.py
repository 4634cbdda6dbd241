"""Many jobs in a table: of any state, or of those that run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from stepwell.cli.output import Column, ago, compact, local, table
from stepwell.values.duration import describe
from stepwell.values.job import JobInfo

_EMPTY = "no job matches"


def print_jobs(jobs: Sequence[JobInfo], now: datetime) -> None:
    """Print jobs in any state."""
    owned = any(job.owner is not None for job in jobs)
    table(
        [
            Column("id"),
            Column("state"),
            Column("task", cut=True),
            Column("queue", cut=True),
            *([Column("owner", cut=True)] if owned else []),
            Column("attempt", right=True),
            Column("enqueued"),
            Column("due"),
            Column("error", cut=True),
        ],
        (
            (
                job.id,
                job.state,
                job.task,
                job.queue,
                *([job.owner] if owned else []),
                job.attempt,
                ago(job.enqueued_at, now),
                ago(job.run_at, now) if job.state in ("scheduled", "waiting") else "",
                job.error,
            )
            for job in jobs
        ),
        empty=_EMPTY,
    )


def print_running(jobs: Sequence[JobInfo], now: datetime) -> None:
    """Print jobs that run: since when, for how long, on which worker, and the progress that they last reported."""
    owned = any(job.owner is not None for job in jobs)
    table(
        [
            Column("id"),
            Column("state"),
            Column("task", cut=True),
            Column("queue", cut=True),
            *([Column("owner", cut=True)] if owned else []),
            Column("attempt", right=True),
            Column("since"),
            Column("for", right=True),
            Column("worker"),
            Column("progress", cut=True),
        ],
        (
            (
                job.id,
                "cancelling" if job.cancelling else "undoing" if job.undoing else job.state,
                job.task,
                job.queue,
                *([job.owner] if owned else []),
                job.attempt,
                local(job.claimed_at),
                _running_for(job, now),
                job.worker_id,
                None if job.progress is None else compact(job.progress),
            )
            for job in jobs
        ),
        empty=_EMPTY,
    )


def _running_for(job: JobInfo, now: datetime) -> str:
    return "" if job.claimed_at is None else describe(max((now - job.claimed_at).total_seconds(), 0))
