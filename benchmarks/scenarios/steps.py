"""Durable functions: what a step costs beside saving its row, what sleepers cost others, how soon a waiter wakes."""

from __future__ import annotations

import time

import psutil
import psycopg

from benchmarks.run import BARE, STEPWELL, Run
from benchmarks.scenarios.cost import cpu, read
from benchmarks.scenarios.latency import percentile
from benchmarks.stage import WARM_UP, Stage
from benchmarks.system import System
from stepwell import App

STEPS = 10
_BATCH = 500
_PAIRS = 3
_PATIENCE = 60
_WAITING = "select count(*) from stepwell.job where state = 'waiting'"


def steps(run: Run) -> None:
    """The rates first, then what Postgres and Python are asked for, then those that wait."""
    _rates(run)
    _round_trips(run)
    _cost(run)
    _sleepers(run)
    _waking(run)


def _rates(run: Run) -> None:
    batches, jobs, one_by_one = (4, 4_000, 300) if run.quick else (20, 20_000, 2_000)
    held: list[float] = []
    held_by_two: list[float] = []
    bare: list[float] = []
    ours: list[float] = []
    bare_ms: list[float] = []
    ours_ms: list[float] = []
    for number in range(run.rounds):
        print(f"   round {number + 1} of {run.rounds}", flush=True)
        # What others do on the machine changes these two by a fifth from one minute to the next: so often, and in turn.
        for _ in range(1 if run.quick else _PAIRS):
            held.append(held_rate(run, _BATCH, batches, loops=1))
            ours.append(step_rate(run, STEPWELL, jobs, 500))
        bare.append(step_rate(run, BARE, jobs, _BATCH))
        held_by_two.append(held_rate(run, _BATCH, batches, loops=2))
        bare_ms.append(1000 / step_rate(run, BARE, one_by_one, 1))
        ours_ms.append(1000 / step_rate(run, STEPWELL, one_by_one, 1))
    # The ceiling is what saving alone allows over one connection, which is what a worker has for it. What two would
    # give, and what is left when the jobs are claimed and finished as well, is shown beside it.
    only, by_two = "bare loop, saving only", "bare loops, saving only, two connections"
    whole = f"bare loop, claim, {STEPS} steps, finish"
    for what, rates in ((only, held), (by_two, held_by_two), (whole, bare)):
        run.record("steps", what, rates, "steps/s")
    what = f"{STEPS} steps, concurrency 500"
    run.record("steps", what, ours, "steps/s", only, held, at_least=0.6)
    run.record("steps", what, ours, "steps/s", by_two, held_by_two)
    run.record("steps", what, ours, "steps/s", whole, bare)
    run.record("steps", f"{STEPS} steps, concurrency 1", ours_ms, "ms/step", "bare, one by one", bare_ms, at_most=2)


def held_rate(run: Run, batch: int, batches: int, loops: int) -> float:
    """Steps saved in a second, of jobs that are held."""
    with run.stage(BARE, batch * batches * loops) as stage:
        return float(stage.run_script("hold.py", batch, batches, STEPS, loops))


def step_rate(run: Run, system: System, jobs: int, concurrency: int) -> float:
    """Steps in a second, when jobs of ten are drained. One at a time is one bare loop, and not two."""
    loops = 1 if concurrency == 1 else 2
    environment = {"BENCH_TASK": "ten_steps", "BENCH_STEPS": str(STEPS), "BENCH_LOOPS": str(loops)}
    with run.stage(system, jobs, environment) as stage:
        return stage.drain(jobs, concurrency).rate * STEPS


def _round_trips(run: Run) -> None:
    with run.stage(STEPWELL) as stage:
        [alone] = round_trips(stage, "ten_steps")
        _, again = round_trips(stage, "replayed")
    run.record("steps", f"round trips of {STEPS} steps", [len(alone)], "in all", limit=STEPS + 2)
    replayed = [trip for trip in again if trip not in ("claim", "finish")]
    run.record("steps", f"round trips of {STEPS} replayed steps", [len(replayed)], "in all", limit=0)


def round_trips(stage: Stage, task: str) -> list[list[str]]:
    """What was asked of Postgres in each run of one job."""
    return [line.split() for line in stage.run_script("trips.py", task).splitlines()]


def _cost(run: Run) -> None:
    jobs = 4_000 if run.quick else 20_000
    with run.stage(STEPWELL, jobs, {"BENCH_TASK": "ten_steps"}) as stage:
        before = read(stage)
        with stage.workers(500) as (worker,):
            stage.wait_until_done(jobs)
            python = cpu(psutil.Process(worker.pid))
        after = read(stage)
    each = jobs * STEPS
    run.record("steps", "WAL, with its share of claim and finish", [(after.wal - before.wal) / each], "bytes/step")
    run.record("steps", "transactions", [(after.transactions - before.transactions) / each * 1000], "per 1000")
    run.record("steps", "Python, its start included", [python / each * 1e6], "µs CPU")
    run.record("steps", "Postgres, its vacuum included", [(after.cpu - before.cpu) / each * 1e6], "µs CPU")


def _sleepers(run: Run) -> None:
    jobs, sleeping = (20_000, 5_000) if run.quick else (200_000, 200_000)
    alone: list[float] = []
    beside: list[float] = []
    suspended: list[float] = []
    for number in range(run.rounds):
        # In turn, and each first in its turn: what the machine does later in a pair is not for one of them alone.
        for sleepers in (0, sleeping) if number % 2 else (sleeping, 0):
            with run.stage(STEPWELL) as stage:
                if sleepers:
                    suspended.append(put_to_sleep(stage, sleepers))
                (beside if sleepers else alone).append(_drain(stage, jobs))
    run.record("steps", "jobs that begin to sleep", suspended, "jobs/s")
    what = f"other jobs, beside {sleeping:,} that sleep"
    run.record("steps", what, beside, "jobs/s", "without", alone, at_least=0.95)


def put_to_sleep(stage: Stage, jobs: int) -> float:
    """Have a worker run so many jobs up to a sleep of a day. Returns how many that were in a second."""
    with App(stage.dsn) as app:
        sleeper = app.task(name="sleeper")(_sleeper)
        sleeper.enqueue_many([sleeper.call()] * jobs)
    with stage.workers(500), psycopg.connect(stage.dsn, autocommit=True) as connection:
        stage.wait_for(jobs)
        # Those that began a moment ago may still be on their way: to count so many earlier would disturb them.
        deadline = time.monotonic() + _PATIENCE
        while connection.execute(_WAITING).fetchone() != (jobs,):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all of {jobs} jobs slept in {_PATIENCE} s")
            time.sleep(0.05)
        return jobs / (time.monotonic() - stage.ran.first)


async def _sleeper() -> None:
    """Nothing runs here: the jobs are only put in."""


def _drain(stage: Stage, jobs: int) -> float:
    stage.run("fill", jobs)
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        # What tables that grew in the course of a day have had from autovacuum.
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
    return stage.drain(jobs, 500).rate


def _waking(run: Run) -> None:
    samples = 100 if run.quick else 500
    found: list[list[float]] = []
    started: list[list[float]] = []
    for _ in range(run.rounds):
        with run.stage(STEPWELL) as stage:
            started.append(stage.ping(samples))
        with run.stage(STEPWELL) as stage:
            found.append(wake(stage, samples))
    for q, limit in ((50, 5.0), (99, None)):
        woken, idle = ([percentile(sample, q) for sample in each] for each in (found, started))
        run.record("steps", f"event to handler, p{q}", woken, "ms", f"enqueue to handler, p{q}", idle, limit=limit)


def wake(stage: Stage, jobs: int) -> list[float]:
    """Seconds from the call that emits to the line after the wait, with an idle worker."""
    with stage.workers(10):
        stage.run_script("wake.py", jobs + WARM_UP)
    return stage.ran.latencies[WARM_UP:]
