"""How long after its time a job, or a tick of a schedule, runs: from `run_at` or `scheduled_for` to the first line.

A handler returns when it began, and its row in history says when it was due. The one is this machine's clock as Python
reads it, the other the same clock as Postgres does, so the difference is fair; between two machines it would not be.
Less than nothing would be early, and that must never be.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import LiteralString

import psycopg

from benchmarks.run import BARE, STEPWELL, Run
from benchmarks.scenarios.backlog import put
from benchmarks.scenarios.latency import PERCENTILES, percentile
from benchmarks.stage import WARM_UP, Stage, stop
from stepwell import App
from stepwell.calendar.schedule import NewSchedule
from stepwell.calendar.timing import Interval
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch

DUE, RETRIED = "late", "late_again"
_SHORTEST = 0.05
# In each lane: few enough that most find the worker with nothing to do.
_A_SECOND = 20
_SCHEDULES = 50
# Some share their ticks, as those of a fleet do at the full hour, and some seldom meet.
_TIMINGS = ("* * * * * *", "*/2 * * * * *", "200ms", "330ms", "500ms", "0.7s", "1.1s")
_PATIENCE = 60

_LATE = """
    select (h.result::text::bigint - extract(epoch from coalesce(h.scheduled_for, h.run_at)) * 1000000) / 1000000
    from stepwell.history h
    where h.task = %s and h.schedule_id is null
      or h.scheduled_for between to_timestamp(%s) and to_timestamp(%s)
    order by h.id
"""


def lateness(run: Run) -> None:
    """Due jobs and retries, alone and with a million due tomorrow in the same table; and schedules, few and many."""
    jobs, longest, seconds, many = (40, 1.0, 3, 100_000) if run.quick else (250, 3.0, 10, 1_000_000)
    together = 1000 if run.quick else 10_000
    last: list[float] = []
    found: dict[str, list[list[float]]] = {}

    def keep(what: str, late: list[float]) -> None:
        found.setdefault(what, []).append(late)

    for _ in range(run.rounds):
        # At the same time, each in its own database: a few milliseconds tell more of what else the machine does just
        # then than of anything here.
        with run.stage(BARE) as bare, run.stage(STEPWELL) as alone, run.stage(STEPWELL) as crowded:
            put(crowded, many, delay=86400)
            settle(crowded)
            lanes = {
                "bare due": (bare, DUE),
                "due": (alone, DUE),
                "retried": (alone, RETRIED),
                "crowded due": (crowded, DUE),
                "crowded retried": (crowded, RETRIED),
            }
            with bare_loop(bare, "jobs"), worker(alone), worker(crowded):
                for what, late in zip(lanes, due([*lanes.values()], jobs, longest), strict=True):
                    keep(what, late)
        with run.stage(BARE) as bare, bare_loop(bare, "schedules"):
            keep("bare schedules", scheduled(bare, seconds))
        with run.stage(STEPWELL) as alone, worker(alone):
            keep("schedules", scheduled(alone, seconds))
        with run.stage(STEPWELL) as alone, worker(alone):
            last.append(fired_together(alone, together))

    def record(what: str, name: str, against: str, other: str, limit: float, at_most: float | None = None) -> None:
        for q in PERCENTILES:
            last = q == max(PERCENTILES)
            run.record(
                "lateness",
                f"{what}, p{q}",
                [percentile(late, q) for late in found[name]],
                "ms",
                against,
                [percentile(late, q) for late in found[other]],
                at_most=None if last else at_most,
                limit=limit if last else None,
            )

    crowd = f"beside {many:,} due tomorrow"
    record("due", "due", "bare loop", "bare due", 20)
    record(f"due, {crowd}", "crowded due", "without", "due", 20, 1.5)
    record("retried", "retried", "due", "due", 20)
    record(f"retried, {crowd}", "crowded retried", "without", "retried", 20, 1.5)
    record(f"{_SCHEDULES} schedules", "schedules", "bare loop", "bare schedules", 50)
    run.record("lateness", f"{together:,} schedules due together, the last is fired", last, "ms", limit=1000)


@contextmanager
def bare_loop(stage: Stage, what: str) -> Generator[None]:
    """The least lateness: a loop that waits for nothing else than jobs, or schedules."""
    process = stage.start_script("due.py", what)
    try:
        _wait_for(stage, lambda: _one(stage, "select count(*) from stepwell.worker where pid = %s", process.pid) == 1)
        yield
        if process.poll() is not None:
            raise RuntimeError(f"the bare loop ended with {process.returncode}")
    finally:
        stop([process])


@contextmanager
def worker(stage: Stage) -> Generator[None]:
    """A worker that leads: one that does not looks half a second later."""
    with stage.workers(100):
        _wait_for(stage, lambda: _one(stage, "select count(*) from stepwell.leader") == 1)
        yield


def settle(stage: Stage) -> None:
    """Write out what was put in, so that nobody waits for the disk on its account."""
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        connection.execute("checkpoint")


def due(lanes: Sequence[tuple[Stage, str]], jobs: int, longest: float) -> list[list[float]]:
    """Put so many jobs of a task into each lane, in turn, each to run in a while of up to `longest` seconds."""

    async def put_in() -> None:
        async with AsyncExitStack() as apps:
            tasks = [(await apps.enter_async_context(App(stage.dsn))).task(name=task)(_late) for stage, task in lanes]
            for task in tasks * WARM_UP:
                await task.using(delay=_SHORTEST).aenqueue()
            await asyncio.to_thread(_wait_for_all, lanes, WARM_UP)
            began, every = time.monotonic(), 1 / _A_SECOND / len(lanes)
            for n, task in enumerate(tasks * jobs):
                await asyncio.sleep(max(0.0, began + n * every - time.monotonic()))
                await task.using(delay=random.uniform(_SHORTEST, longest)).aenqueue()

    asyncio.run(put_in())
    _wait_for_all(lanes, WARM_UP + jobs)
    return [_never_early(_read(stage, task)[WARM_UP:]) for stage, task in lanes]


def scheduled(stage: Stage, seconds: float) -> list[float]:
    """Let schedules fire for so many seconds."""
    with App(stage.dsn) as app:
        late = app.task(name=DUE)(_late)
        for n, timing in zip(range(_SCHEDULES), itertools.cycle(_TIMINGS), strict=False):
            app.schedule_task(late, timing, name=f"{n}: {timing}", overlap="allow")
        # Only what is due while nobody makes or deletes schedules.
        began = time.time()
        time.sleep(seconds)
        ended = time.time()
        for schedule in app.schedules():
            app.schedule_named(schedule.name).delete()
    _wait_for(stage, lambda: _one(stage, "select count(*) from stepwell.job where schedule_id is not null") == 0)
    return _never_early(_read(stage, None, began, ended))


def fired_together(stage: Stage, count: int) -> float:
    """How late the last of so many schedules is fired that are due at the same second, in milliseconds."""
    timing = Interval(5.0)
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        due = timing.after(datetime.now(UTC) + timedelta(seconds=10))
        assert due is not None
        schedules = [NewSchedule(f"{n}", DUE, "{}", "default", 0, timing, "skip", 1, 0.0) for n in range(count)]
        fetch(connection, queries.schedules.put_schedules("shop", schedules, [due] * count, declared=False))
        fired = "select count(*) from stepwell.tick t where t.at = %s"
        _wait_for(stage, lambda: _one(stage, fired, due) == count)
        row = connection.execute("select max(t.handled_at) from stepwell.tick t where t.at = %s", (due,)).fetchone()
        assert row is not None
        fetch(connection, queries.schedules.remove_schedules("shop", [], except_these=True))
    return (row[0] - due).total_seconds() * 1000


async def _late() -> None:
    """Nothing runs here: the jobs are only put in."""


def _never_early(late: list[float]) -> list[float]:
    early = [-each for each in late if each < 0]
    if early:
        raise AssertionError(f"{len(early)} ran before their time, by up to {max(early) * 1000:.3f} ms")
    return late


def _wait_for_all(lanes: Sequence[tuple[Stage, str]], jobs: int) -> None:
    for stage, task in lanes:
        _wait_for(stage, lambda stage=stage, task=task: len(_read(stage, task)) >= jobs)


def _read(stage: Stage, task: str | None, began: float = 0, ended: float = 0) -> list[float]:
    """By how many seconds those that have run were late, in the order in which they were put in: the jobs of a task, or
    the runs of schedules that were due in a span of time."""
    with psycopg.connect(stage.dsn) as connection:
        return [float(row[0]) for row in connection.execute(_LATE, (task, began, ended))]


def _one(stage: Stage, query: LiteralString, *params: object) -> int:
    with psycopg.connect(stage.dsn) as connection:
        row = connection.execute(query, params).fetchone()
        assert row is not None
        return int(row[0])


def _wait_for(stage: Stage, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{stage.system.name}: not all that was to happen did in {_PATIENCE} s")
        time.sleep(0.1)
