"""What a transaction that stays open does to the rate: its snapshot keeps every dead row alive."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import psycopg

from benchmarks.run import STEPWELL, Run
from benchmarks.stage import Drained
from benchmarks.system import System


def snapshot(run: Run) -> None:
    """The last second must be as good as the first."""
    jobs = 100_000 if run.quick else 300_000
    done = [drain_beside_snapshot(run, STEPWELL, jobs) for _ in range(run.rounds)]
    run.series["snapshot: stepwell"] = per_second(done[0])
    run.record(
        "snapshot",
        f"last second of {jobs:,} jobs, concurrency 50",
        [drained.last_second for drained in done],
        "jobs/s",
        "the first second",
        [drained.first_second for drained in done],
        at_least=0.8,
    )


def drain_beside_snapshot(run: Run, system: System, jobs: int, patience: float = 300) -> Drained:
    """Drain while a snapshot that is older than the jobs is held."""
    with run.stage(system) as stage, _held_snapshot(stage.dsn):
        stage.fill(jobs)
        return stage.drain(jobs, 50, patience=patience, at_most=patience - 10)


def per_second(drained: Drained) -> list[tuple[float, float]]:
    """The rate in each half second."""
    most = drained.counts[-1][1]
    end = next(at for at, count in drained.counts if count == most)
    return [
        (at / 2 + 0.25, drained.rate_between(at / 2, at / 2 + 0.5)) for at in range(int(end * 2)) if at / 2 + 0.5 <= end
    ]


@contextmanager
def _held_snapshot(dsn: str) -> Generator[None]:
    with psycopg.connect(dsn) as connection:
        connection.execute("set transaction isolation level repeatable read")
        connection.execute("select count(*) from pg_class")
        yield
        connection.rollback()
