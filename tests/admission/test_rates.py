"""Rates: never exceeded in any window, by the database's clock."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from waiting import auntil

from stepwell import App, ConfigError, Rate, RateLimited, Worker

Connection = psycopg.Connection[Any]


def claimed(conn: Connection, task: str) -> list[float]:
    rows = conn.execute(
        "select extract(epoch from claimed_at)::float8 from stepwell.jobs where task = %s order by 1", [task]
    )
    return [row[0] for row in rows]


def check(times: list[float], interval: float, burst: int) -> None:
    """In any window there are at most the burst and the tokens that it brought."""
    for first, at in enumerate(times):
        for last in range(first, len(times)):
            most = burst + (times[last] - at) / interval + 1e-3
            assert last - first + 1 <= most, (first, last, times[last] - at)


async def test_a_rate_is_never_exceeded_and_is_reached(app: App, conn: Connection) -> None:
    @app.task(rate=Rate(200, per="1s", burst=20, key="api"))
    async def call(n: int) -> None: ...

    jobs = await call.aenqueue_many([{"n": n} for n in range(220)])
    async with Worker(app, concurrency=50):
        for job in jobs:
            await job.aresult(timeout="20s")
    times = claimed(conn, "call")
    check(times, 1 / 200, 20)
    # 200 jobs beyond the burst take a second.
    assert 0.95 < times[-1] - times[0] < 1.5


async def test_two_workers_share_a_rate(app: App, dsn: str, conn: Connection) -> None:
    async def call(n: int) -> None: ...

    rate = Rate(100, per="1s", burst=5, key="api")
    task = app.task(name="call", rate=rate)(call)
    async with App(dsn) as other:
        other.task(name="call", rate=rate)(call)
        async with Worker(app), Worker(other):
            jobs = await task.aenqueue_many([{"n": n} for n in range(60)])
            for job in jobs:
                await job.aresult(timeout="20s")
    check(claimed(conn, "call"), 1 / 100, 5)


async def test_a_smooth_rate_spaces_jobs_evenly(app: App, conn: Connection) -> None:
    @app.task(rate=Rate(50, per="1s", smooth=True))
    async def call(n: int) -> None: ...

    jobs = await call.aenqueue_many([{"n": n} for n in range(15)])
    async with Worker(app):
        for job in jobs:
            await job.aresult(timeout="20s")
    times = claimed(conn, "call")
    check(times, 1 / 50, 1)


async def test_a_backlog_that_waited_for_a_worker_does_not_burst(app: App, conn: Connection) -> None:
    """Admitted jobs reserve tokens, which only a claim uses: however long no worker is there."""

    @app.task(rate=Rate(50, per="1s", burst=5, key="api"), queue="later")
    async def call(n: int) -> None: ...

    @app.task
    async def other() -> None: ...

    jobs = await call.aenqueue_many([{"n": n} for n in range(30)])
    async with Worker(app, queues=["default"]):
        await auntil(lambda: conn.execute("select from stepwell.jobs where state = 'ready'").rowcount == 5)
        await asyncio.sleep(0.5)
    async with Worker(app):
        for job in jobs:
            await job.aresult(timeout="20s")
    check(claimed(conn, "call"), 1 / 50, 5)


async def test_rate_limited_closes_the_bucket_and_uses_no_attempt(app: App, conn: Connection) -> None:
    told = list[float]()
    attempts = list[int]()

    @app.task(rate=Rate(1000, key="api"))
    async def call(n: int) -> None:
        told.append(asyncio.get_running_loop().time())
        if len(told) == 1:
            raise RateLimited(retry_after="700ms")

    async with Worker(app):
        first = await call.aenqueue(0)
        await auntil(lambda: conn.execute("select from stepwell.bucket where closed_until is not null").rowcount)
        others = await call.aenqueue_many([{"n": n} for n in range(1, 5)])
        for job in (first, *others):
            await job.aresult(timeout="20s")
        info = await first.ainfo()
        assert info is not None
        attempts.append(info.attempt)
    assert told[1] - told[0] > 0.65
    assert attempts == [1]


async def test_a_rate_is_changed_at_run_time(app: App, conn: Connection) -> None:
    ran = list[int]()

    @app.task(rate=Rate(1, per="1h", key="api"))
    async def call(n: int) -> None:
        ran.append(n)

    jobs = await call.aenqueue_many([{"n": n} for n in range(20)])
    async with Worker(app):
        await auntil(lambda: len(ran) == 1)
        conn.execute("select stepwell.set_rate('api', 1000, 1)")
        # The token that the first job used comes back at the new rate.
        for job in jobs:
            await job.aresult(timeout="20s")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rate(0),
        lambda: Rate(5, per=0),
        lambda: Rate(5, burst=0),
        lambda: Rate(5, burst=2, smooth=True),
    ],
)
def test_bad_rates_are_refused(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()
