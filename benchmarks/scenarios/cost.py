"""What one job costs: transactions, WAL, dead rows, processor time; and what a worker holds in memory."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

import psutil
import psycopg

from benchmarks.run import STEPWELL, Run
from benchmarks.stage import Stage

_MEGABYTE = 1e6
_LOOK = """
    select d.xact_commit, w.wal_bytes::bigint, t.dead, pg_backend_pid()
    from pg_stat_database d, pg_stat_wal w,
      (select sum(n_tup_upd + n_tup_del)::bigint as dead from pg_stat_user_tables) t
    where d.datname = current_database()
"""


@dataclass(frozen=True)
class Meter:
    """What Postgres has counted so far."""

    transactions: int
    wal: int
    dead: int
    cpu: float


def cost(run: Run) -> None:
    """Per job, then per worker."""
    _per_job(run)
    _memory(run)


def _per_job(run: Run) -> None:
    jobs = 20_000 if run.quick else 50_000
    with run.stage(STEPWELL) as stage:
        empty = read(stage)
        stage.run("fill", jobs)
        filled = read(stage)
        with stage.workers(500) as (worker,):
            stage.wait_for(jobs)
            python = cpu(psutil.Process(worker.pid))
        drained = read(stage)
    for what, before, after, limit in (
        ("claim and finish", filled, drained, 1000),
        ("enqueue, claim and finish", empty, drained, 1500),
    ):
        run.record("cost", f"WAL, {what}", [(after.wal - before.wal) / jobs], "bytes", limit=limit)
    run.record("cost", "transactions", [(drained.transactions - filled.transactions) / jobs * 1000], "per 1000")
    run.record("cost", "dead rows", [(drained.dead - filled.dead) / jobs], "rows")
    run.record("cost", "Python, its start included", [python / jobs * 1e6], "µs CPU")
    run.record("cost", "Postgres, its vacuum included", [(drained.cpu - filled.cpu) / jobs * 1e6], "µs CPU")


def _memory(run: Run) -> None:
    with run.stage(STEPWELL) as stage, stage.workers(500) as (worker,):
        process = psutil.Process(worker.pid)
        stage.run("ping", 1)
        time.sleep(1)
        run.record("cost", "worker at rest", [_rss(process)], "MB", limit=80)
        if run.quick:
            return
        grown: list[tuple[float, float]] = []
        for done in range(100_000, 1_000_001, 100_000):
            stage.run("fill", 100_000)
            stage.wait_for(1 + done)
            grown.append((done, _rss(process)))
        run.series["memory"] = grown
        run.record(
            "cost", "worker after 1,000,000 jobs", [grown[-1][1]], "MB", "100,000 jobs", [grown[0][1]], at_most=1.1
        )
    with run.stage(STEPWELL, environment={"BENCH_TASK": "nap"}) as stage, stage.workers(500) as (worker,):
        stage.run("fill", 500)
        stage.wait_for(500)
        run.record("cost", "worker with 500 running", [_rss(psutil.Process(worker.pid))], "MB")
        worker.terminate()
        time.sleep(0.5)
        worker.terminate()  # the second signal hands the jobs back


def read(stage: Stage) -> Meter:
    """Read the meter."""
    # A backend reports what it did once a second at most, or when it ends.
    time.sleep(1.5)
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        row = connection.execute(_LOOK).fetchone()
        assert row is not None
        transactions, wal, dead, pid = row
        postmaster = psutil.Process(pid).parent()
        assert postmaster is not None
        return Meter(transactions, wal, dead or 0, cpu(postmaster))


def cpu(process: psutil.Process) -> float:
    """Seconds of processor time of a process, of its children, and of those that have ended."""
    times = process.cpu_times()
    spent = times.user + times.system + times.children_user + times.children_system
    for child in process.children():
        with contextlib.suppress(psutil.NoSuchProcess):  # ended since; it is among those that have, next time
            spent += cpu(child)
    return spent


def _rss(process: psutil.Process) -> float:
    return process.memory_info().rss / _MEGABYTE
