"""The branches that an error in `ctx.first` has cut off, beside other branches, and when children are cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import psycopg
import pytest

from stepwell import App, Context, Retry, SyncContext
from stepwell.testing import Clock, adrain


async def poll() -> str:
    raise ConnectionError("away")


@pytest.mark.parametrize("plain", [False, True])
async def test_the_other_branches_wait_on_while_a_branch_beside_the_failed_first_waits(app: App, plain: bool) -> None:
    @app.task
    async def work(ctx: Context) -> Any:
        return await ctx.gather(ctx.first(ctx.step(poll), ctx.sleep("1h")), ctx.sleep("2h"))

    @app.task
    def plain_work(ctx: SyncContext) -> Any:
        def beside() -> Any:
            return ctx.first(lambda: ctx.step(poll), lambda: ctx.sleep("1h"))

        return ctx.gather(beside, lambda: ctx.sleep("2h"))

    async with Clock(app) as clock:
        either: Any = plain_work if plain else work
        job = await either.aenqueue()
        await adrain(app)
        await clock.advance("61m")
        await adrain(app)
        info = await job.ainfo()
        assert info is not None
        assert info.state == "waiting"
        await clock.advance("61m")
        await adrain(app)
        assert (await job.aresult(timeout="5s"))[0] == [1, None]


async def test_a_branch_that_has_caught_the_error_and_returned_is_not_run_otherwise_later(app: App) -> None:
    @app.task
    async def work(ctx: Context) -> Any:
        async def ask() -> str:
            try:
                return (await ctx.first(ctx.step(poll), ctx.receive("sig"))).value.value
            except ConnectionError:
                return "refused"

        asked, _ = await ctx.gather(ask(), ctx.wait_for("go"))
        return [asked, (await ctx.receive("sig")).value]

    job = await work.aenqueue()
    await adrain(app)
    await job.asend("sig", 1)
    await adrain(app)
    await app.aemit("go")
    await adrain(app)
    assert await job.aresult(timeout="5s") == ["refused", 1]


async def test_a_branch_that_has_lost_waits_for_nothing_that_an_error_has_cut_off_in_it(app: App) -> None:
    failed: list[int] = []

    @app.task(retry=Retry(initial="1h"))
    async def work(ctx: Context) -> Any:
        running, cut_off = asyncio.Event(), asyncio.Event()

        async def lose() -> None:
            running.set()
            try:
                await ctx.gather(ctx.first(ctx.step(poll), ctx.receive("sig")), ctx.sleep("1d"))
            finally:
                cut_off.set()

        async def win() -> None:
            if running.is_set():
                await cut_off.wait()

        won = await ctx.first(lose(), win())
        if not failed:
            failed.append(won.branch)
            raise ConnectionError("away")
        return [won.branch, (await ctx.receive("sig")).value]

    async with Clock(app) as clock:
        job = await work.aenqueue()
        await adrain(app)
        assert failed == [1]
        await job.asend("sig", 1)
        await clock.advance("2h")
        await adrain(app)
        assert await job.aresult(timeout="5s") == [1, 1]


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("plain", [False, True])
async def test_the_decision_is_saved_before_the_children_that_lost_are_cancelled(
    app: App, conn: psycopg.Connection[Any], plain: bool, returns: bool
) -> None:
    conn.execute("create table public.seen (decided boolean)")
    conn.execute("grant insert on public.seen to public")
    conn.execute(
        """
        create function public.look() returns trigger language plpgsql as $$
        begin
          insert into public.seen select exists (
            select from stepwell.step s where s.kind = 'first' and not s.pending
          ) and exists (select from stepwell.step s where s.error is not null and s.kind = 'step');
          return old;
        end $$
        """
    )
    conn.execute(
        "create trigger look before delete on stepwell.job for each row when (old.task = 'child') "
        "execute function public.look()"
    )

    @app.task
    async def child(ctx: Context) -> None:
        await ctx.wait_for("never")

    @app.task
    async def work(ctx: Context) -> None:
        async def late() -> None:
            await ctx.wait_for("begin")
            await ctx.step(poll)

        with contextlib.suppress(ConnectionError):
            await ctx.first(late(), ctx.spawn(child))
        if not returns:
            await ctx.wait_for("go")

    @app.task
    def plain_work(ctx: SyncContext) -> None:
        def late() -> None:
            ctx.wait_for("begin")
            ctx.step(poll)

        with contextlib.suppress(ConnectionError):
            ctx.first(late, ctx.spawn(child))
        if not returns:
            ctx.wait_for("go")

    job = await (plain_work if plain else work).aenqueue()
    await adrain(app)
    await app.aemit("begin")
    await adrain(app)
    await app.aemit("go")
    await adrain(app)
    await job.aresult(timeout="5s")
    assert conn.execute("select decided from public.seen").fetchall() == [(True,)]
