"""Time travel with a live worker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from stepwell import App, ConfigError, Context, Worker
from stepwell.testing import Clock, adrain, always_replay, drain


async def test_a_month_of_sleep_ends_long_before_a_worker_would_look_again(app: App) -> None:
    @app.task
    async def monthly(ctx: Context) -> float:
        began = await ctx.now()
        await ctx.sleep("30d")
        return ((await ctx.now()) - began).total_seconds()

    async with Worker(app) as worker, Clock(app) as clock:
        registered = worker.id
        job = await monthly.aenqueue()
        while (info := await job.ainfo()) is None or info.state != "waiting":
            pass
        await clock.advance("30d")
        assert await job.aresult(timeout="60s") == timedelta(days=30).total_seconds()
        assert worker.id == registered, "it lost its lease"


async def test_workers_keep_their_leases_when_the_clock_goes_back(app: App) -> None:
    @app.task
    async def quick() -> int:
        return 1

    async with Worker(app) as worker, Clock(app) as clock:
        registered = worker.id
        for days in (400, -800, 3):
            await clock.set(await clock.now() + timedelta(days=days))
            assert await (await quick.aenqueue()).aresult(timeout="60s") == 1
        assert worker.id == registered


def test_the_clock_stands_still_until_it_is_told(app_of: App, conn: psycopg.Connection[Any]) -> None:
    start = datetime(2031, 5, 1, 12, tzinfo=UTC)
    with Clock(app_of, at=start) as clock:
        assert clock.now() == start == clock.now()
        assert clock.advance("1h30m") == start + timedelta(minutes=90)
        assert clock.set(start) == start
        assert not clock.skip(), "nothing is due"
    assert conn.execute("select abs(extract(epoch from stepwell.now() - clock_timestamp())) < 5").fetchone() == (True,)


def test_the_clock_skips_to_what_is_due_next(app_of: App) -> None:
    @app_of.task
    def later(days: int) -> int:
        return days

    first = later.using(delay="2d").enqueue(2)
    second = later.using(delay="5d").enqueue(5)
    with Clock(app_of) as clock:
        assert drain(app_of) == 0
        assert clock.skip()
        assert drain(app_of) == 1
        assert first.result(timeout=60) == 2
        info = second.info()
        assert info is not None
        assert info.state == "scheduled"
        assert clock.skip()
        drain(app_of)
        assert second.result(timeout=60) == 5
        assert not clock.skip()


async def test_a_drain_runs_what_is_due_and_leaves_what_waits(app: App) -> None:
    ran: list[str] = []

    @app.task(queue="elsewhere")
    async def child(name: str) -> str:
        ran.append(name)
        return name

    @app.task
    async def parent(ctx: Context) -> list[str]:
        names = await ctx.gather(ctx.spawn(child, "a"), ctx.spawn(child, "b"))
        await ctx.wait_for("go")
        return list(names)

    job = await parent.aenqueue()
    assert await adrain(app) >= 4
    assert sorted(ran) == ["a", "b"]
    info = await job.ainfo()
    assert info is not None
    assert info.state == "waiting"
    await app.aemit("go")
    await adrain(app)
    assert await job.aresult(timeout=60) == ["a", "b"]


async def test_a_drain_follows_jobs_into_queues_that_nobody_has_named(app: App) -> None:
    @app.task
    async def leaf(n: int) -> int:
        return n

    @app.task
    async def root() -> None:
        await leaf.using(queue="made up").aenqueue(7)

    await root.aenqueue()
    assert await adrain(app) == 2


async def test_always_replay_runs_a_handler_once_for_each_step(app: App) -> None:
    runs: list[int] = []

    async def one() -> int:
        return 1

    @app.task
    async def durable(ctx: Context) -> int:
        runs.append(ctx.epoch)
        return await ctx.step(one) + await ctx.step(one)

    job = await durable.aenqueue()
    with always_replay():
        await adrain(app)
    assert await job.aresult(timeout=60) == 2
    assert runs == [1, 2, 3]


def test_a_time_without_a_zone_is_refused(app_of: App) -> None:
    with pytest.raises(ConfigError, match="time zone"):
        Clock(app_of, at=datetime(2031, 5, 1))  # noqa: DTZ001
    with Clock(app_of) as clock, pytest.raises(ConfigError, match="time zone"):
        clock.set(datetime(2031, 5, 1))  # noqa: DTZ001


def test_a_clock_within_another_gives_it_its_time_back(app_of: App, conn: psycopg.Connection[Any]) -> None:
    start = datetime(2031, 5, 1, 12, tzinfo=UTC)
    stopped = "select at from stepwell.clock"
    with Clock(app_of, at=start) as outer:
        with Clock(app_of) as inner:
            assert inner.now() == start
            inner.advance("30d")
        assert conn.execute(stopped).fetchall() == [(start,)]
        assert outer.advance("1h") == start + timedelta(hours=1)
    assert conn.execute(stopped).fetchall() == []


def test_a_clock_that_a_killed_process_left_stopped_goes_on_after_the_next_one(
    app_of: App, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("insert into stepwell.clock values ('2031-05-01')")
    with Clock(app_of):
        pass
    assert conn.execute("select at from stepwell.clock").fetchall() == []


async def test_a_clock_within_another_gives_it_its_time_back_in_async_code(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    start = datetime(2031, 5, 1, 12, tzinfo=UTC)
    async with Clock(app, at=start) as clock:
        async with Clock(app, at=start + timedelta(days=1)):
            pass
        assert await clock.now() == start
        assert conn.execute("select at from stepwell.clock").fetchall() == [(start,)]
