"""Whether a deep queue slows the worker down: the first seconds of a million jobs, alone and in company."""

from __future__ import annotations

import psycopg

from benchmarks.run import BARE, STEPWELL, Run
from benchmarks.stage import Stage
from benchmarks.system import System

_MANY = 1_000_000
_FEW = 50_000
_SECONDS = 20

_PUT = """
    insert into stepwell.job (id, run_at, enqueued_at, rank, state, task, queue, args)
    select stepwell.uuid7(), now() + %(delay)s * interval '1 second', now(), -(n %% %(priorities)s),
      (case when %(delay)s > 0 then 'scheduled' else 'ready' end)::stepwell.state, 'noop',
      case when %(queues)s = 1 then 'default' else 'q' || n %% %(queues)s end, '{}'
    from generate_series(1, %(jobs)s) as n
"""


def backlog(run: Run) -> None:
    """Each in company of the same machine's 50,000."""
    few: list[float] = []
    beside: list[float] = []
    for _ in range(max(run.rounds, 3)):
        # In turns, so that what disturbs the machine disturbs both.
        few.append(_first_seconds(run, _FEW))
        beside.append(_first_seconds(run, _MANY, scheduled=_MANY))
    bare = [_first_seconds(run, _MANY, BARE)]
    run.record("backlog", "50,000 ready", few, "jobs/s")
    alone = [_first_seconds(run, _MANY)]
    run.record("backlog", "1,000,000 ready", alone, "jobs/s", "bare loop", bare)
    run.record("backlog", "1,000,000 ready", alone, "jobs/s", "50,000 ready", few, at_least=0.9)
    run.record("backlog", "with 1,000,000 scheduled beside", beside, "jobs/s", "50,000 ready", few, at_least=0.9)
    run.record("backlog", "in 10 queues", [_first_seconds(run, _MANY, queues=10)], "jobs/s", "50,000 ready", few)
    run.record("backlog", "5 priorities", [_first_seconds(run, _MANY, priorities=5)], "jobs/s", "50,000 ready", few)


def _first_seconds(
    run: Run, jobs: int, system: System = STEPWELL, *, scheduled: int = 0, queues: int = 1, priorities: int = 1
) -> float:
    names = ",".join(f"q{n}" for n in range(queues)) if queues > 1 else "default"
    with run.stage(system, environment={"BENCH_QUEUES": names}) as stage:
        put(stage, jobs, queues=queues, priorities=priorities)
        if scheduled:
            put(stage, scheduled, delay=86400)
        return stage.drain(jobs, 500, at_most=_SECONDS).rate


def put(stage: Stage, jobs: int, *, delay: int = 0, queues: int = 1, priorities: int = 1) -> None:
    """Rows as `enqueue_many` would make them, only sooner."""
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        options = {"jobs": jobs, "delay": delay, "queues": queues, "priorities": priorities}
        connection.execute(_PUT, options)
        # What a table that grew in the course of a day has had from autovacuum and checkpoints. Else the disk still
        # writes the rows just made while the worker waits for its commits.
        connection.execute("vacuum analyze stepwell.job")
        connection.execute("checkpoint")
