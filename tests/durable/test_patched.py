"""A job that comes to a patch only after the deploy takes the new way, whatever else it has saved before."""

from __future__ import annotations

from typing import Any

import pytest
from waiting import auntil

from stepwell import App, Context, Retry, SyncContext, Worker


@pytest.mark.slow
async def test_tries_and_branches_that_lost_are_not_taken_for_steps_to_come(app: App) -> None:
    tried: list[int] = []

    async def flaky() -> int:
        tried.append(1)
        if len(tried) == 1:
            raise ConnectionError("away")
        return 1

    @app.task
    async def work(ctx: Context) -> bool:
        await ctx.step(flaky, retry=Retry(max_attempts=3, initial="1ms"))
        await ctx.first(ctx.sleep("1100ms"), ctx.wait_for("never"))
        await ctx.sleep("1100ms")
        return ctx.patched("new")

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="20s")


async def waits(job: Any) -> bool:
    info = await job.ainfo()
    return info is not None and info.state == "waiting"


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("plain", [True, False])
async def test_a_patch_that_is_asked_for_in_a_loop_has_one_answer(app: App, old: bool, plain: bool) -> None:
    deployed = not old

    @app.task
    async def work(ctx: Context) -> list[bool]:
        found = [ctx.patched("new")] if deployed else []
        await ctx.step(str, key="before")
        await ctx.wait_for("deployed")
        return [*found, *(ctx.patched("new") for _ in range(2))]

    @app.task
    def plain_work(ctx: SyncContext) -> list[bool]:
        found = [ctx.patched("new")] if deployed else []
        ctx.step(str, key="before")
        ctx.wait_for("deployed")
        return [*found, *(ctx.patched("new") for _ in range(2))]

    async with Worker(app):
        job = await (plain_work if plain else work).aenqueue()
        await auntil(lambda: waits(job))
        deployed = True
        await app.aemit("deployed")
        assert await job.aresult(timeout="30s") == [not old] * 3


async def test_each_branch_has_an_answer_of_its_own(app: App) -> None:
    deployed = False

    @app.task
    async def work(ctx: Context) -> list[list[bool]]:
        async def one(n: int) -> list[bool]:
            found = [ctx.patched("new")] if deployed else []
            await ctx.wait_for("deployed")
            return [*found, ctx.patched("new")] if deployed else []

        return await ctx.gather(*(one(n) for n in range(2 if deployed else 1)))

    async with Worker(app):
        job = await work.aenqueue()
        await auntil(lambda: waits(job))
        deployed = True
        await app.aemit("deployed")
        await app.aemit("deployed")
        assert await job.aresult(timeout="30s") == [[False, False], [True, True]]
