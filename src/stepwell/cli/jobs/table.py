"""Jobs in a table: in any state, or only running ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from stepwell.cli.output import Column, ago, compact, local, table
from stepwell.values.duration import describe
from stepwell.values.job import JobInfo

_Cells = Callable[[JobInfo], Sequence[object]]


def print_jobs(jobs: Sequence[JobInfo], now: datetime) -> None:
    """Print jobs in any state."""
    _print(
        jobs,
        lambda job: job.state,
        [Column("enqueued"), Column("due"), Column("error", cut=True)],
        lambda job: (
            ago(job.enqueued_at, now),
            ago(job.run_at, now) if job.state in ("scheduled", "waiting") else "",
            job.error,
        ),
    )


def print_running(jobs: Sequence[JobInfo], now: datetime) -> None:
    """Print running jobs: since when, for how long, on which worker, and their last progress."""
    _print(
        jobs,
        lambda job: "cancelling" if job.cancelling else "undoing" if job.undoing else job.state,
        [Column("since"), Column("for", right=True), Column("worker"), Column("progress", cut=True)],
        lambda job: (
            local(job.claimed_at),
            "" if job.claimed_at is None else describe(max((now - job.claimed_at).total_seconds(), 0)),
            job.worker_id,
            None if job.progress is None else compact(job.progress),
        ),
    )


def _print(
    jobs: Sequence[JobInfo], state: Callable[[JobInfo], str], more_columns: Sequence[Column], more_cells: _Cells
) -> None:
    owned = any(job.owner is not None for job in jobs)
    table(
        [
            Column("id"),
            Column("state"),
            Column("task", cut=True),
            Column("queue", cut=True),
            *([Column("owner", cut=True)] if owned else []),
            Column("attempt", right=True),
            *more_columns,
        ],
        (
            (
                job.id,
                state(job),
                job.task,
                job.queue,
                *([job.owner or "-"] if owned else []),
                job.attempt,
                *more_cells(job),
            )
            for job in jobs
        ),
        empty="no job matches",
    )
