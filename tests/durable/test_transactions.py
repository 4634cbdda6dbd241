"""A step that is a transaction: the user's writes and the saved step are committed together, exactly once."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg
import pytest

from stepwell import App, Context, JobFailed, Retry, SyncContext, Worker

SOON = Retry(max_attempts=3, initial="5ms", jitter=0)
ONCE = Retry(max_attempts=1)


@pytest.fixture
def orders(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    conn.execute("create table orders (id int primary key)")
    return conn


@pytest.mark.counts_runs
async def test_its_writes_are_done_once_and_its_value_is_kept(app: App, orders: psycopg.Connection[Any]) -> None:
    seen: list[Any] = []

    @app.task
    async def shipped(order: int) -> None:
        pass

    @app.task(retry=SOON)
    async def work(ctx: Context) -> Any:
        async with ctx.transaction("put") as tx:
            await tx.execute("insert into orders values (1)")
            await shipped.using(connection=tx.connection, delay="1d").aenqueue(1)
            tx.save({"id": 1})
            seen.append("body")
        seen.append((tx.done, tx.value))
        if ctx.attempt < 3:
            raise ValueError
        return tx.value

    async with Worker(app):
        job = await work.aenqueue()
        assert await job.aresult(timeout="10s") == {"id": 1}
    assert seen == ["body"] + [(True, {"id": 1})] * 3
    assert orders.execute("select id from orders").fetchall() == [(1,)]
    assert orders.execute("select count(*) from stepwell.job").fetchone() == (1,)


async def test_one_that_fails_leaves_nothing_and_is_tried_again(app: App, orders: psycopg.Connection[Any]) -> None:
    @app.task(retry=SOON)
    async def work(ctx: Context) -> None:
        async with ctx.transaction("put") as tx:
            await tx.execute("insert into orders values (%s)", (ctx.attempt,))
            if ctx.attempt == 1:
                raise ValueError

    async with Worker(app):
        await (await work.aenqueue()).aresult(timeout="10s")
    assert orders.execute("select id from orders").fetchall() == [(2,)]


@pytest.mark.parametrize("plain", [False, True])
async def test_a_commit_that_fails_and_is_caught_is_met_again_in_each_run(
    app: App, orders: psycopg.Connection[Any], plain: bool
) -> None:
    orders.execute("create table lines (order_id int references orders deferrable initially deferred)")
    runs: list[int] = []

    @app.task(retry=SOON)
    async def work(ctx: Context) -> str:
        runs.append(1)
        said = "nothing"
        try:
            async with ctx.transaction("put") as tx:
                await tx.execute("insert into lines values (1)")
        except psycopg.Error as error:
            said = type(error).__name__
        await ctx.step(lambda: None, key="after")
        if len(runs) == 1:
            orders.execute("insert into orders values (1)")
            raise ValueError
        return said

    @app.task(retry=SOON)
    def plain_work(ctx: SyncContext) -> str:
        runs.append(1)
        said = "nothing"
        try:
            with ctx.transaction("put") as tx:
                tx.execute("insert into lines values (1)")
        except psycopg.Error as error:
            said = type(error).__name__
        ctx.step(lambda: None, key="after")
        if len(runs) == 1:
            orders.execute("insert into orders values (1)")
            raise ValueError
        return said

    async with Worker(app):
        job = await (plain_work if plain else work).aenqueue()
        assert await job.aresult(timeout="10s") == "ForeignKeyViolation"
    assert orders.execute("select count(*) from lines").fetchone() == (0,)


async def test_a_plain_task_has_them_too(app: App, orders: psycopg.Connection[Any]) -> None:
    @app.task(retry=SOON)
    def work(ctx: SyncContext) -> int:
        with ctx.transaction("put") as tx:
            found = tx.execute("insert into orders values (7) returning id").fetchone()
            tx.save(found[0] if found else None)
        if ctx.attempt == 1:
            raise ValueError
        return tx.value

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == 7
    assert orders.execute("select id from orders").fetchall() == [(7,)]


async def test_one_that_is_ended_in_its_block_is_refused(app: App) -> None:
    @app.task(retry=ONCE)
    async def ends(ctx: Context) -> None:
        async with ctx.transaction("put") as tx:
            await tx.execute("commit")

    @app.task(retry=ONCE)
    async def aborts(ctx: Context) -> None:
        async with ctx.transaction("put") as tx:
            with contextlib.suppress(psycopg.Error):
                await tx.execute("select 1 / 0")

    @app.task(retry=ONCE)
    async def bad_value(ctx: Context) -> None:
        async with ctx.transaction("put") as tx:
            tx.save(object())

    @app.task(retry=ONCE, transaction=True)
    async def within(ctx: Context) -> None:
        ctx.transaction("put")

    async with Worker(app):
        for task, said in (
            (ends, "ended by a statement"),
            (aborts, "aborted by an error that its block has caught: let the error out, or"),
            (bad_value, "'put' of task"),
            (within, "leave that out, and use ctx.transaction"),
        ):
            with pytest.raises(JobFailed, match=said):
                await (await task.aenqueue()).aresult(timeout="10s")


@pytest.mark.counts_runs
async def test_a_late_run_commits_nothing(app: App, orders: psycopg.Connection[Any]) -> None:
    runs: list[int] = []

    @app.task
    async def work(ctx: Context) -> int:
        runs.append(1)
        async with ctx.transaction("put") as tx:
            await tx.execute("insert into orders values (%s)", (len(runs),))
            if len(runs) == 1:
                # As if the lease had been lost: the job goes to another run.
                orders.execute("select stepwell.snooze(array[%s]::uuid[], array[1], array[0])", (ctx.id,))
        return len(runs)

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == 2
    assert orders.execute("select id from orders").fetchall() == [(2,)]
