"""Schedules fire: on time, once, with their tick, whoever ticks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from waiting import auntil

from stepwell import App, Context, Worker


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
