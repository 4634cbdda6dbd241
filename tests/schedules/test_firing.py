"""Schedules fire: on time, once, with their tick, whoever ticks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
from waiting import auntil

from stepwell import App, Context, Worker
from stepwell.calendar.schedule import NewSchedule
from stepwell.calendar.timing import Interval
from stepwell.postgres import queries


async def test_a_schedule_in_code_runs_at_its_ticks(app: App) -> None:
    seen: list[tuple[datetime, datetime]] = []

    @app.schedule("200ms", args={"n": 7})
    @app.task
    async def beat(ctx: Context, n: int) -> None:
        assert n == 7
        assert ctx.scheduled_for is not None
        seen.append((ctx.scheduled_for, datetime.now(UTC)))

    async with Worker(app):
        await auntil(lambda: len(seen) >= 5)
    ticks = [tick for tick, _ in seen]
    assert ticks == sorted(set(ticks))
    for tick, at in seen:
        assert (tick - datetime(1970, 1, 1, tzinfo=UTC)) % timedelta(milliseconds=200) == timedelta(0)
        assert at >= tick


@pytest.mark.slow
async def test_two_workers_fire_each_tick_once(app: App) -> None:
    seen: list[datetime | None] = []

    @app.schedule("* * * * * *", overlap="allow")
    @app.task
    async def beat(ctx: Context) -> None:
        seen.append(ctx.scheduled_for)

    async with Worker(app), Worker(app), Worker(app):
        await auntil(lambda: len(seen) >= 3)
        await asyncio.sleep(0)
    assert len(seen) == len(set(seen))


@pytest.mark.slow
async def test_thousands_that_are_due_together_are_fired_by_the_thousand(app: App) -> None:
    @app.task
    async def beat() -> None: ...

    hour = Interval(3600.0)
    [now] = await app.database.afetch(queries.reads.clock())
    due = hour.after(now - timedelta(hours=1))
    schedules = [NewSchedule(f"beat {n}", "beat", "{}", "default", 0, hour, "skip", 1, 0.0) for n in range(2500)]
    await app.database.afetch(queries.schedules.put_schedules("shop", schedules, [due] * 2500, declared=False))

    async def calls() -> tuple[int, int]:
        [found] = await app.database.afetch(
            queries.Query("select count(*), count(distinct handled_at) from stepwell.ticks", (), lambda *counts: counts)
        )
        return found

    async with Worker(app):
        await auntil(lambda: _all(calls, 2500))
    # A hundred, then twice a thousand, then the rest; the stopped clock of one call is the same for all that it fires.
    assert (await calls())[1] <= 5


async def _all(calls: Callable[[], Awaitable[tuple[int, int]]], count: int) -> bool:
    return (await calls())[0] == count
