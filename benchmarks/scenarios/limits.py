"""What limits, rates and turns cost: drains of jobs that have them, beside the plain drain in the same rounds."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import psycopg

from benchmarks.run import BARE, STEPWELL, Run
from benchmarks.scenarios.latency import percentile
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.claims import Position

_SLOTS = 500
_FEW_SLOTS = 4
_RATE, _BURST, _RATED_SECONDS = 1000, 50, 10
_SMOOTH_RATE = 50


def limits(run: Run) -> None:
    """The drains first, then a line of 100,000 beside one of 100, then whether a rate is reached and kept, and how long
    a small tenant waits beside a large one."""
    _drains(run)
    _one_by_one(run)
    _long_line(run)
    _rate(run)
    _smooth_rate(run)
    _small_tenant(run)


def _drains(run: Run) -> None:
    jobs = 10_000 if run.quick else 50_000
    cases = {
        "plain": ("noop", 0),
        "1,000 keys, two at once of each": ("by_key", 1000),
        "one key, 100 at once": ("hundred_at_once", 0),
        "100 fair keys": ("in_turn", 100),
    }
    rates: dict[str, list[float]] = {case: [] for case in cases}
    for number in range(run.rounds):
        for case, (task, keys) in cases.items():
            print(f"   round {number + 1} of {run.rounds}: {case}", flush=True)
            environment = {"BENCH_TASK": task, **({"BENCH_KEYS": str(keys)} if keys else {})}
            with run.stage(STEPWELL, jobs, environment) as stage:
                rates[case].append(stage.drain(jobs, _SLOTS).rate)
    plain = rates.pop("plain")
    for (what, found), least in zip(rates.items(), (0.5, 0.3, 0.7), strict=True):
        run.record("flow", what, found, "jobs/s", "plain drain", plain, at_least=least)


def _one_by_one(run: Run) -> None:
    jobs = 300 if run.quick else 1_500
    limited: list[float] = []
    bare: list[float] = []
    for _ in range(run.rounds):
        with run.stage(STEPWELL, jobs, {"BENCH_TASK": "one_at_once"}) as stage:
            limited.append(stage.drain(jobs, _SLOTS).rate)
        with run.stage(BARE, jobs, {"BENCH_LOOPS": "1"}) as stage:
            bare.append(stage.drain(jobs, 1).rate)
    run.record("flow", "one key, one at once", limited, "jobs/s", "bare loop, one by one", bare, at_least=0.3)


def _long_line(run: Run) -> None:
    """Claim and finish one job at a time, with few and with many behind it in line."""
    many = 20_000 if run.quick else 100_000
    rates: dict[int, list[float]] = {100: [], many: []}
    for _ in range(run.rounds):
        for blocked, found in rates.items():
            with run.stage(STEPWELL, blocked + 200, {"BENCH_TASK": "one_at_once"}) as stage:
                found.append(_loop(stage.dsn, 200))
    run.record(
        "flow", f"claim and finish, {many:,} in line", rates[many], "jobs/s", "100 in line", rates[100], at_least=0.9
    )


def _loop(dsn: str, jobs: int) -> float:
    with psycopg.connect(dsn, autocommit=True) as connection:
        register = queries.fleet.register_worker("bench", 1, "bare", ["default"], "{}", 1, 86400)
        [worker_id] = fetch(connection, register)
        fetch(connection, queries.upkeep.admit_keys(["all"]))
        began = _now(connection)
        for _ in range(jobs):
            [job] = fetch(connection, queries.claims.claim(worker_id, ["default"], [Position()], ["one_at_once"], 1))
            fetch(
                connection, queries.outcomes.finish([job.id], [job.epoch], ["null"], [86400.0], ["succeeded"], [None])
            )
        return jobs / (_now(connection) - began)


def _now(connection: psycopg.Connection[Any]) -> float:
    row = connection.execute("select extract(epoch from clock_timestamp())::float8").fetchone()
    assert row is not None
    return row[0]


def _rate(run: Run) -> None:
    """The claims of ten seconds, by the database's clock."""
    jobs = _BURST + _RATE * _RATED_SECONDS
    reached: list[float] = []
    above = 0.0
    for _ in range(run.rounds):
        with run.stage(STEPWELL, jobs, {"BENCH_TASK": "rated"}) as stage:
            with stage.workers(_SLOTS):
                stage.wait_until_done(jobs)
            times = _claims(stage.dsn)
        reached.append((jobs - _BURST) / (times[-1] - times[0]))
        # In any window: the burst, and the tokens that it brought. The worst begins at some claim.
        tokens = _BURST
        last = times[0]
        for at in times:
            tokens = min(_BURST, tokens + (at - last) * _RATE) - 1
            above = max(above, -tokens)
            last = at
    run.record("flow", f"rate of {_RATE:,}/s over {_RATED_SECONDS} s", reached, "jobs/s", "the rate", [_RATE],
               at_least=0.98, at_most=1.0)  # fmt: skip
    run.record("flow", "most tokens taken beyond the bucket", [above], "tokens", limit=0.001)


def _smooth_rate(run: Run) -> None:
    """As many claims as in ten seconds, and the most of them in any second."""
    jobs = _SMOOTH_RATE * _RATED_SECONDS
    reached: list[float] = []
    most: list[float] = []
    for _ in range(run.rounds):
        with run.stage(STEPWELL, jobs, {"BENCH_TASK": "smooth"}) as stage:
            with stage.workers(_SLOTS):
                stage.wait_until_done(jobs)
            times = _claims(stage.dsn)
        reached.append((jobs - 1) / (times[-1] - times[0]))
        most.append(max(bisect_left(times, at + 1) - first for first, at in enumerate(times)))
    what = f"smooth rate of {_SMOOTH_RATE}/s"
    run.record("flow", f"{what} over {_RATED_SECONDS} s", reached, "jobs/s", "the rate", [_SMOOTH_RATE],
               at_least=0.95, at_most=1.0)  # fmt: skip
    run.record("flow", f"{what}: most in any second", [max(most)], "jobs", limit=_SMOOTH_RATE)


def _claims(dsn: str) -> list[float]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute("select extract(epoch from claimed_at)::float8 from stepwell.jobs order by 1")
        return [row[0] for row in found]


def _small_tenant(run: Run) -> None:
    """Ten jobs at a time, which wait for few slots: alone, and beside a tenant with many jobs before them."""
    many = 10_000 if run.quick else 100_000
    visits, environment = 20, {"BENCH_TASK": "visit", "BENCH_ARGS": '{"tenant": "large"}'}
    waits: dict[int, list[float]] = {0: [], many: []}
    for _ in range(run.rounds):
        for others, found in waits.items():
            with run.stage(STEPWELL, others, environment) as stage, stage.workers(_FEW_SLOTS):
                stage.wait_for(10 * _FEW_SLOTS if others else 0)
                # In the first visit the worker and the connections may still begin.
                stage.run_script("tenant.py", visits + 1)
                found.append(percentile(stage.ran.latencies[-10 * visits :], 95))
    run.record(
        "flow", f"a tenant with 10 jobs beside {many:,}, p95", waits[many], "ms", "alone, p95", waits[0], at_most=3.0
    )
