"""An error that ends `ctx.first` cuts its other branches off: for good only if the handler catches it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from waiting import Heard, auntil

from stepwell import App, Context, Fail, Retry, Snooze, SyncContext, Worker
from stepwell.telemetry.jobs import AttemptFailed, JobSnoozed
from stepwell.testing import Clock, adrain

SOON = Retry(max_attempts=1000, initial="20ms", factor=1, jitter=0)


async def poll() -> str:
    raise ConnectionError("away")


async def ended(app: App, job_id: Any, state: str) -> bool:
    info = await app.job(job_id).ainfo()
    return info is not None and info.state == state


@pytest.mark.parametrize("error", [ConnectionError("away"), Snooze("20ms")])
async def test_the_other_branches_wait_on_while_one_fails_and_is_tried_again(app: App, error: Exception) -> None:
    async def fail() -> str:
        raise error

    @app.task(retry=SOON)
    async def work(ctx: Context) -> int:
        return (await ctx.first(ctx.step(fail), ctx.wait_for("stop"))).branch

    async with Worker(app) as worker:
        heard = Heard(worker)
        job = await work.aenqueue()
        await auntil(lambda: len(heard.of(AttemptFailed)) + len(heard.of(JobSnoozed)) >= 2)
        await app.aemit("stop")
        assert await job.aresult(timeout="30s") == 1


async def test_the_other_branches_wait_on_in_a_plain_function_too(app: App) -> None:
    def fail() -> str:
        raise ConnectionError("away")

    @app.task(retry=SOON)
    def work(ctx: SyncContext) -> int:
        return ctx.first(lambda: ctx.step(fail), lambda: ctx.wait_for("stop")).branch

    async with Worker(app) as worker:
        heard = Heard(worker)
        job = await work.aenqueue()
        await auntil(lambda: len(heard.of(AttemptFailed)) >= 2)
        await app.aemit("stop")
        assert await job.aresult(timeout="30s") == 1


async def test_a_deadline_does_not_begin_anew_with_each_attempt(app: App) -> None:
    @app.task(retry=Retry(max_attempts=1000, initial="1h", factor=1, jitter=0))
    async def work(ctx: Context) -> int:
        return (await ctx.first(ctx.step(poll), ctx.sleep("150m"))).branch

    async with Clock(app) as clock:
        job = await work.aenqueue()
        for _ in range(3):
            await adrain(app)
            await clock.advance("1h")
        await adrain(app)
        assert await job.aresult(timeout="30s") == 1


async def test_an_error_leaves_the_children_of_the_other_branches_alone(app: App) -> None:
    tried: list[int] = []

    async def fail_twice() -> None:
        tried.append(1)
        if len(tried) < 3:
            raise ConnectionError("away")

    @app.task
    async def child(ctx: Context) -> None:
        await ctx.wait_for("go")

    @app.task(retry=SOON)
    async def work(ctx: Context) -> int:
        async def helped() -> None:
            await ctx.gather(ctx.spawn(child))

        async def late() -> None:
            await ctx.step(fail_twice)
            await ctx.wait_for("never")

        return (await ctx.first(late(), ctx.spawn(child), helped())).branch

    async with Worker(app):
        job = await work.aenqueue()
        await auntil(lambda: len(tried) == 3)
        await app.aemit("go")
        assert await job.aresult(timeout="30s") in (1, 2)
        assert len(await app.ajobs(task="child")) == 2


@pytest.mark.parametrize("plain", [False, True])
async def test_a_caught_error_has_won_and_the_others_take_nothing_any_more(app: App, plain: bool) -> None:
    ways: list[str] = []

    async def fail() -> str:
        raise Fail("refused")

    @app.task
    async def child(ctx: Context) -> None:
        await ctx.wait_for("never")

    @app.task
    async def work(ctx: Context) -> list[Any]:
        async def late() -> None:
            await ctx.wait_for("begin")
            await ctx.step(fail)

        try:
            won = await ctx.first(late(), ctx.gather(ctx.receive("sig"), ctx.wait_for("stop")), ctx.spawn(child))
            ways.append(f"branch {won.branch}")
        except Fail:
            ways.append("caught")
        first = (await ctx.wait_for("stop", timeout="1d")).value
        return [first, (await ctx.receive("sig")).value]

    @app.task
    def plain_work(ctx: SyncContext) -> list[Any]:
        def late() -> None:
            ctx.wait_for("begin")
            ctx.step(fail)

        def both() -> None:
            ctx.gather(lambda: ctx.receive("sig"), lambda: ctx.wait_for("stop"))

        try:
            won = ctx.first(late, both, ctx.spawn(child))
            ways.append(f"branch {won.branch}")
        except Fail:
            ways.append("caught")
        first = ctx.wait_for("stop", timeout="1d").value
        return [first, ctx.receive("sig").value]

    async with Worker(app):
        job = await (plain_work if plain else work).aenqueue()
        await auntil(lambda: ended(app, job.id, "waiting"))
        await job.asend("sig", 2)
        await app.aemit("begin")
        [loser] = await auntil(lambda: app.ajobs(task="child"))
        await auntil(lambda: ended(app, loser.id, "cancelled"))
        await auntil(lambda: ended(app, job.id, "waiting"))
        await app.aemit("stop", value=1)
        assert await job.aresult(timeout="30s") == [1, 2]
    assert set(ways) == {"caught"}
    assert len(ways) >= 2


async def test_the_children_that_lost_are_cancelled_even_if_the_handler_returns_next(app: App) -> None:
    @app.task
    async def child(ctx: Context) -> None:
        await ctx.wait_for("never")

    @app.task
    async def work(ctx: Context) -> str:
        with contextlib.suppress(ConnectionError):
            await ctx.first(ctx.step(poll), ctx.spawn(child))
        return "went without"

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="30s") == "went without"
        [loser] = await app.ajobs(task="child")
        await auntil(lambda: ended(app, loser.id, "cancelled"))


async def test_an_error_that_is_caught_and_raised_again_repeats_all_branches(app: App) -> None:
    told: list[int] = []

    async def tell() -> None:
        told.append(1)

    @app.task(retry=SOON)
    async def work(ctx: Context) -> int:
        try:
            return (await ctx.first(ctx.step(poll), ctx.wait_for("stop"))).branch
        except ConnectionError:
            await ctx.step(tell)
            raise

    async with Worker(app) as worker:
        heard = Heard(worker)
        job = await work.aenqueue()
        await auntil(lambda: len(heard.of(AttemptFailed)) >= 2)
        await app.aemit("stop")
        assert await job.aresult(timeout="30s") == 1
    assert told == [1]


async def test_a_branch_that_fails_without_a_step_is_repeated_with_the_others(app: App) -> None:
    @app.task(retry=SOON)
    async def work(ctx: Context) -> int:
        async def fail() -> None:
            raise ConnectionError("away")

        try:
            return (await ctx.first(fail(), ctx.wait_for("stop"))).branch
        except ConnectionError:
            await ctx.step(str, key="told")
            raise

    async with Worker(app) as worker:
        heard = Heard(worker)
        job = await work.aenqueue()
        await auntil(lambda: len(heard.of(AttemptFailed)) >= 2)
        await app.aemit("stop")
        assert await job.aresult(timeout="30s") == 1
