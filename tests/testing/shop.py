"""A program for the crash sweep, with a task that is not as careful as it should be."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from stepwell import App, Context
from stepwell.durable.job_context import run_of

_PAY = "insert into payment (job_id) values (%s)"


def make_app(database: str | None = None) -> App:
    app = App(database, name="shop")

    @app.task
    async def careful(ctx: Context, order: int) -> int:
        async with ctx.transaction("pay") as tx:
            await tx.execute(_PAY, (ctx.id,))
        await ctx.sleep("7d")
        return order

    @app.task
    async def careless(ctx: Context, order: int) -> int:
        async def pay() -> None:
            async with app.database.aconnection() as connection:
                await connection.execute(_PAY, (ctx.id,))

        await ctx.step(pay)
        return order

    @app.task
    async def forgetful(ctx: Context) -> Any:
        # The other step depends on chance: what an earlier run has saved is not found again.
        first = await ctx.step(_number, key=f"number {uuid.uuid4()}")
        async with ctx.transaction("end"):
            pass
        return [first, len(run_of(ctx).job.journal or "")]

    @app.task
    async def lost(ctx: Context) -> None:
        await ctx.wait_for("what nobody emits")

    @app.task
    async def slow(ctx: Context, pauses: list[float]) -> None:
        for pause in pauses:
            await ctx.step(asyncio.sleep, pause)

    return app


async def _number() -> int:
    return 1


app = make_app()
