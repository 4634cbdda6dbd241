"""A job that comes to a patch only after the deploy takes the new way, whatever else it has saved before."""

from __future__ import annotations

import pytest

from stepwell import App, Context, Retry, Worker


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
