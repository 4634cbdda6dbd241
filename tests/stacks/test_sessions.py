"""Transactional tasks and steps in a session of the user's: its commit is that of the job or step, or there is none."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from waiting import auntil

from stepwell import App, ConfigError, Context, JobFailed, Retry, Snooze, Step, SyncContext, Worker

from .engines import Base, Order, async_engine, engine, url

ONCE = Retry(max_attempts=1)


@pytest.fixture
def orders(app: App, conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    Base.metadata.create_all(engine(app))
    conn.execute("insert into orders values (1, false)")
    return conn


def paid(conn: psycopg.Connection[Any]) -> list[tuple[int, bool]]:
    return conn.execute("select id, paid from orders order by id").fetchall()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_objects_completion_and_enqueues_commit_together(
    app: App, orders: psycopg.Connection[Any], driver: str
) -> None:
    @app.task(queue="elsewhere")
    async def confirm(order_id: int) -> None: ...

    seen: list[Any] = []

    @app.task(transaction=async_sessionmaker(async_engine(app, driver)), retry=Retry(max_attempts=2, initial=0))
    async def pay(ctx: Context, order_id: int) -> int:
        order = await ctx.session.get_one(Order, order_id)
        order.paid = True
        ctx.session.add(Order(id=2))
        job = await confirm.using(connection=ctx.session).aenqueue(order_id)
        seen.append((await job.aexists(), paid(orders)))
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return order.id

    async with Worker(app):
        assert await (await pay.aenqueue(1)).aresult(timeout="10s") == 1
    assert seen == [(False, [(1, False)])] * 2
    assert paid(orders) == [(1, True), (2, False)]
    assert await app.acount_jobs(task="confirm") == 1


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
async def test_a_plain_function_has_a_session_that_blocks(
    app: App, orders: psycopg.Connection[Any], driver: str
) -> None:
    @app.task(transaction=sessionmaker(engine(app, driver)))
    def pay(ctx: Context, order_id: int) -> int:
        ctx.sync_session.get_one(Order, order_id).paid = True
        return order_id

    async with Worker(app):
        assert await (await pay.aenqueue(1)).aresult(timeout="10s") == 1
    assert paid(orders) == [(1, True)]


async def test_code_that_uses_a_scoped_session_joins_the_job(app: App, orders: psycopg.Connection[Any]) -> None:
    scoped = scoped_session(sessionmaker(engine(app)))
    ascoped = async_scoped_session(async_sessionmaker(async_engine(app)), asyncio.current_task)

    @app.task(transaction=scoped, retry=ONCE)
    def pay(ctx: Context, fails: bool) -> None:
        assert scoped() is ctx.sync_session
        scoped.get_one(Order, 1).paid = True
        if fails:
            raise ValueError

    @app.task(transaction=ascoped)
    async def add(ctx: Context) -> None:
        assert ascoped() is ctx.session
        ascoped.add(Order(id=2))

    async with Worker(app):
        with pytest.raises(JobFailed):
            await (await pay.aenqueue(True)).aresult(timeout="10s")
        assert paid(orders) == [(1, False)]
        await (await pay.aenqueue(False)).aresult(timeout="10s")
        await (await add.aenqueue()).aresult(timeout="10s")
    assert paid(orders) == [(1, True), (2, False)]


@pytest.mark.parametrize("how", ["snooze", "bad result", "flush fails", "commit fails", "error swallowed", "commits"])
async def test_nothing_is_written_when_it_does_not_succeed(app: App, orders: psycopg.Connection[Any], how: str) -> None:
    orders.execute("create table line (order_id int references orders deferrable initially deferred)")

    @app.task(transaction=async_sessionmaker(async_engine(app)), retry=ONCE)
    async def pay(ctx: Context) -> Any:
        if how == "snooze" and ctx.epoch == 2:
            raise ValueError("enough")
        if how == "commits":
            await ctx.session.commit()
        (await ctx.session.get_one(Order, 1)).paid = True
        match how:
            case "snooze":
                raise Snooze(0)
            case "bad result":
                return object()
            case "flush fails":
                ctx.session.add(Order(id=1))
            case "commit fails":
                await ctx.session.execute(text("insert into line values (7)"))
            case "error swallowed":
                with pytest.raises(Exception, match="division by zero"):
                    await ctx.session.execute(text("select 1/0"))
            case _:
                pass
        return None

    said = {
        "snooze": "enough",
        "bad result": "object",
        "flush fails": "conflicts with persistent instance|duplicate key",
        "commit fails": "violates foreign key constraint",
        "error swallowed": "current transaction is aborted",
        "commits": r"committed or rolled back ctx\.session itself",
    }[how]
    async with Worker(app):
        with pytest.raises(JobFailed, match=said):
            await (await pay.aenqueue()).aresult(timeout="10s")
    assert paid(orders) == [(1, False)]


async def test_a_run_that_lost_its_job_is_rolled_back(app: App, orders: psycopg.Connection[Any]) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    @app.task(transaction=async_sessionmaker(async_engine(app, "asyncpg")))
    async def add(ctx: Context) -> int:
        ctx.session.add(Order(id=10 + ctx.epoch))
        if ctx.epoch == 1:
            entered.set()
            await go_on.wait()
        return ctx.epoch

    async with Worker(app):
        job = await add.aenqueue()
        await entered.wait()
        # As if the worker had been declared dead: the job is given to another run.
        orders.execute(
            "select stepwell.fail_held(worker_id, 'declared dead', '{}') from stepwell.jobs where id = %s", (job.id,)
        )
        assert await job.aresult(timeout="10s") == 2
        go_on.set()
    assert paid(orders) == [(1, False), (12, False)]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_a_handler_whose_end_met_a_conflict_is_run_again_and_no_attempt_is_used(
    app: App, orders: psycopg.Connection[Any], driver: str
) -> None:
    orders.execute("create sequence ends")
    orders.execute(
        "create function conflict() returns trigger language plpgsql as $$begin if nextval('public.ends') = 1 then"
        " raise exception 'conflict' using errcode = '40001'; end if; return old; end$$"
    )
    orders.execute("create trigger conflict before delete on stepwell.job for each row execute function conflict()")
    runs: list[int] = []

    @app.task(transaction=async_sessionmaker(async_engine(app, driver)), retry=ONCE)
    async def pay(ctx: Context) -> None:
        runs.append(ctx.attempt)
        (await ctx.session.get_one(Order, 1)).paid = True

    async with Worker(app):
        await (await pay.aenqueue()).aresult(timeout="10s")
    assert (runs, paid(orders)) == ([1, 1], [(1, True)])


async def test_a_hook_that_fails_after_the_commit_does_not_make_it_run_again(
    app: App, orders: psycopg.Connection[Any]
) -> None:
    class Hooked(Session): ...

    runs: list[int] = []

    @event.listens_for(Hooked, "after_commit")
    def fail(_: Session) -> None:
        raise ValueError("after the commit")

    @app.task(transaction=sessionmaker(engine(app), class_=Hooked))
    def pay(ctx: Context) -> None:
        runs.append(ctx.attempt)
        ctx.sync_session.get_one(Order, 1).paid = True

    async with Worker(app):
        await (await pay.aenqueue()).aresult(timeout="10s")
    assert (runs, paid(orders)) == ([1], [(1, True)])


async def test_a_job_for_which_the_engine_has_no_connection_is_handed_back(
    app: App, orders: psycopg.Connection[Any]
) -> None:
    small = create_engine(url(app, "psycopg"), pool_size=1, max_overflow=0, pool_timeout=0.05)
    runs: list[int] = []

    @app.task(transaction=sessionmaker(small), retry=ONCE)
    def pay(ctx: Context) -> None:
        runs.append(ctx.attempt)

    taken = small.connect()
    async with Worker(app):
        job = await pay.aenqueue()
        await auntil(lambda: orders.execute("select from stepwell.job where epoch = 1 and state <> 'running'").rowcount)
        assert not runs
        taken.close()
        await job.aresult(timeout="10s")
    small.dispose()
    assert runs == [1]


async def test_an_engine_of_another_database_is_refused_by_name(app: App, server_dsn: str) -> None:
    @app.task(transaction=sessionmaker(engine(App(server_dsn))), retry=ONCE)
    def pay(ctx: Context) -> None: ...

    async with Worker(app):
        with pytest.raises(JobFailed, match="is to another database, 'postgres'"):
            await (await pay.aenqueue()).aresult(timeout="10s")


def test_a_factory_that_does_not_fit_is_refused_where_it_is_declared(app: App) -> None:
    async def pay(ctx: Context) -> None: ...
    def plain(ctx: Context) -> None: ...
    def bare() -> None: ...

    own: Any = engine(app)
    for fn, given, said in (
        (pay, sessionmaker(own), r"task 'pay': the function is 'async def', so its sessions come from an async_"),
        (
            plain,
            async_sessionmaker(),
            "task 'plain': the function is a plain function, so its sessions come from a sess",
        ),
        (pay, own, "transaction= is a sqlalchemy.engine.base.Engine: give True, or a sessionmaker"),
        (bare, sessionmaker(own), r"needs a first parameter 'ctx: Context' for ctx\.session"),
    ):
        with pytest.raises(ConfigError, match=said):
            app.task(transaction=given)(fn)
    with pytest.raises(ConfigError, match="exclude each other"):
        app.task(transaction=sessionmaker(own), process=True)(in_process)


def in_process(ctx: Context) -> None: ...


async def test_the_context_says_which_session_it_has(app: App, orders: psycopg.Connection[Any]) -> None:
    said: list[str] = []

    @app.task(transaction=sessionmaker(engine(app)))
    def pay(ctx: SyncContext) -> None:
        for use in (
            lambda: ctx.session,
            lambda: ctx.sync_connection,
            lambda: ctx.step(print),
        ):
            with pytest.raises(ConfigError) as refused:
                use()
            said.append(str(refused.value))

    async with Worker(app):
        await (await pay.aenqueue()).aresult(timeout="10s")
    assert [
        words in text
        for words, text in zip(("async_sessionmaker", "transaction=True", "one transaction"), said, strict=True)
    ] == [True] * 3


@pytest.mark.counts_runs
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_a_step_in_a_session_is_done_once_and_its_value_is_kept(
    app: App, orders: psycopg.Connection[Any], driver: str
) -> None:
    sessions = async_sessionmaker(async_engine(app, driver))
    seen: list[str] = []

    @app.task(queue="elsewhere")
    async def confirm(order_id: int) -> None: ...

    @app.task(retry=Retry(max_attempts=3, initial=0))
    async def work(ctx: Context) -> Any:
        async with ctx.transaction("add", sessions) as tx:
            tx.session.add(Order(id=2))
            await confirm.using(connection=tx.session).aenqueue(2)
            tx.save({"id": 2})
            seen.append("body")
            if ctx.attempt == 1:
                raise ValueError("in the block")
        if ctx.attempt < 3:
            raise ValueError("after it")
        return tx.value

    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == {"id": 2}
    assert (seen, paid(orders)) == (["body"] * 2, [(1, False), (2, False)])
    assert await app.acount_jobs(task="confirm") == 1


async def test_a_step_in_a_scoped_session_leaves_the_handlers_own_work_alone(
    app: App, orders: psycopg.Connection[Any]
) -> None:
    scoped = scoped_session(sessionmaker(engine(app)))
    ascoped = async_scoped_session(async_sessionmaker(async_engine(app)), asyncio.current_task)

    @app.task(retry=ONCE)
    def work(ctx: SyncContext) -> None:
        own = scoped()
        own.add(Order(id=2))
        with ctx.transaction("a", scoped) as tx:
            assert scoped() is tx.session is not own
            scoped().add(Order(id=3))
        assert paid(orders) == [(1, False), (3, False)]
        with pytest.raises(ValueError, match="in the block"), ctx.transaction("b", scoped):
            raise ValueError("in the block")
        assert scoped() is own
        scoped.commit()
        scoped.remove()

    @app.task(retry=ONCE)
    async def awork(ctx: Context) -> None:
        ascoped().add(Order(id=4))
        async with ctx.transaction("a", ascoped) as tx:
            tx.session.add(Order(id=5))
        await ascoped.commit()
        await ascoped.remove()

    async with Worker(app):
        await (await work.aenqueue()).aresult(timeout="60s")
        await (await awork.aenqueue()).aresult(timeout="60s")
    assert [order_id for order_id, _ in paid(orders)] == [1, 2, 3, 4, 5]


async def test_a_leftover_of_an_earlier_run_does_not_join_a_job(app: App, orders: psycopg.Connection[Any]) -> None:
    scoped = scoped_session(sessionmaker(engine(app)))

    @app.task(retry=ONCE)
    def forgets() -> None:
        scoped().add(Order(id=2))

    @app.task(transaction=scoped, retry=ONCE)
    def pay(ctx: Context) -> bool:
        return not scoped().new

    async with Worker(app, concurrency=1):
        await (await forgets.aenqueue()).aresult(timeout="60s")
        assert await (await pay.aenqueue()).aresult(timeout="60s")
    assert paid(orders) == [(1, False)]


async def test_a_step_of_a_plain_function_has_a_session_that_blocks(app: App, orders: psycopg.Connection[Any]) -> None:
    sessions = sessionmaker(engine(app, "psycopg2"))

    @app.task(retry=ONCE)
    def work(ctx: SyncContext, how: str) -> None:
        with ctx.transaction("pay", sessions) as tx:
            tx.session.get_one(Order, 1).paid = True
            if how == "commits":
                tx.session.commit()
            if how == "flush fails":
                tx.session.execute(text("insert into orders values (3, false)"))
                tx.session.add(Order(id=3))

    async with Worker(app):
        with pytest.raises(JobFailed, match="was ended by a statement of its own block"):
            await (await work.aenqueue("commits")).aresult(timeout="10s")
        orders.execute("update orders set paid = false")
        with pytest.raises(JobFailed, match="duplicate key"):
            await (await work.aenqueue("flush fails")).aresult(timeout="10s")
        assert paid(orders) == [(1, False)]
        await (await work.aenqueue("")).aresult(timeout="10s")
    assert paid(orders) == [(1, True)]


async def test_a_step_of_a_chain_runs_in_a_session(app: App, orders: psycopg.Connection[Any]) -> None:
    def first(n: int) -> int:
        return n + 1

    async def add(ctx: Context, n: int) -> int:
        ctx.session.add(Order(id=n))
        return n

    chain = app.chain("chain", first, Step(add, transaction=async_sessionmaker(async_engine(app, "asyncpg"))))
    async with Worker(app):
        assert await (await chain.aenqueue(6)).aresult(timeout="10s") == 7
    assert paid(orders) == [(1, False), (7, False)]


async def test_the_wrong_name_for_the_transaction_is_told_the_right_one(app: App) -> None:
    @app.task(transaction=True, retry=ONCE)
    async def coroutine(ctx: Context) -> None:
        str(ctx.sync_session)

    @app.task(transaction=True, retry=ONCE)
    def plain(ctx: Context) -> None:
        str(ctx.connection)

    async with Worker(app):
        for task, right in ((coroutine, "'coroutine' has ctx.connection"), (plain, "'plain' has ctx.sync_connection")):
            job = await task.aenqueue()
            with pytest.raises(JobFailed, match=right):
                await job.aresult(timeout="20s")
