"""What a transaction that stays open does to the rate: its snapshot keeps every dead row alive."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import psycopg

from benchmarks.run import STEPWELL, Run
from benchmarks.stage import Drained
from benchmarks.system import System


def snapshot(run: Run) -> None:
    """The last second must be as good as any before it."""
    jobs = 100_000 if run.quick else 300_000
    done = [drain_beside_snapshot(run, STEPWELL, jobs) for _ in range(run.rounds)]
    run.series["snapshot: stepwell"] = done[0].over_time()
    run.record(
        "snapshot",
        f"last second of {jobs:,} jobs, concurrency 50",
        [drained.last_second for drained in done],
        "jobs/s",
        "the best second",
        [drained.best_second for drained in done],
        at_least=0.8,
    )


def drain_beside_snapshot(run: Run, system: System, jobs: int, patience: float = 300) -> Drained:
    """Drain while a snapshot that is older than the jobs is held."""
    with run.stage(system) as stage, held_snapshot(stage.dsn):
        stage.fill(jobs)
        return stage.drain(jobs, 50, patience=patience, at_most=patience - 10)


@contextmanager
def held_snapshot(dsn: str) -> Generator[None]:
    """A transaction that stays open and keeps every dead row that comes after it."""
    with psycopg.connect(dsn) as connection:
        connection.execute("set transaction isolation level repeatable read")
        connection.execute("select count(*) from pg_class")
        yield
        connection.rollback()
