"""Transactional tasks: the handler's writes, the job's completion and what it enqueues, together or not at all."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import psycopg
import pytest
from waiting import Heard, auntil, until

from stepwell import App, Cancel, ConfigError, Context, JobCancelled, JobFailed, Retry, Snooze, Worker
from stepwell.telemetry.jobs import JobLocked, JobStopAsked


@pytest.fixture
def effects(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    conn.execute("create table effect (n int)")
    return conn


def count(conn: psycopg.Connection[Any]) -> int:
    return (conn.execute("select count(*) from effect").fetchone() or (0,))[0]


async def test_writes_completion_and_enqueues_commit_together(app: App, effects: psycopg.Connection[Any]) -> None:
    @app.task
    async def child(n: int) -> int:
        return n

    seen: list[int] = []

    @app.task(transaction=True)
    async def settle(ctx: Context, n: int) -> str:
        await ctx.connection.execute("insert into effect values (%s)", (n,))
        job = await child.using(connection=ctx.connection).aenqueue(n)
        assert await job.ainfo() is None
        seen.append(count(effects))
        return str(job.id)

    async with Worker(app):
        job = await settle.aenqueue(1)
        child_id = await job.aresult(timeout="10s")
        assert await app.job(child_id).aresult(timeout="10s") == 1
    assert (seen, count(effects)) == ([0], 1)


async def test_a_plain_function_has_the_same(app: App, effects: psycopg.Connection[Any]) -> None:
    @app.task(transaction=True, retry=Retry(max_attempts=2, initial=0))
    def settle(ctx: Context, n: int) -> int:
        ctx.sync_connection.execute("insert into effect values (%s)", (n,))
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return n

    async with Worker(app):
        assert await (await settle.aenqueue(1)).aresult(timeout="10s") == 1
    assert count(effects) == 1


@pytest.mark.parametrize("how", ["error", "snooze", "cancel", "bad result", "sql error swallowed"])
async def test_nothing_is_written_when_it_does_not_succeed(
    app: App, effects: psycopg.Connection[Any], how: str
) -> None:
    runs: list[int] = []

    @app.task(transaction=True, retry=Retry(max_attempts=2, initial=0))
    async def settle(ctx: Context) -> Any:
        runs.append(ctx.attempt)
        await ctx.connection.execute("insert into effect values (1)")
        if len(runs) > 1:
            raise Cancel("enough")
        match how:
            case "error":
                raise ValueError("no")
            case "snooze":
                raise Snooze(0)
            case "cancel":
                raise Cancel("no longer")
            case "bad result":
                return object()
            case _:
                try:
                    await ctx.connection.execute("select 1 / 0")
                except psycopg.Error:
                    return "as if nothing had happened"

    async with Worker(app):
        job = await settle.aenqueue()
        with pytest.raises((JobFailed, JobCancelled)):
            await job.aresult(timeout="10s")
    assert count(effects) == 0
    assert runs == {"error": [1, 2], "snooze": [1, 1], "sql error swallowed": [1, 2]}.get(how, [1])


@pytest.mark.parametrize("word", ["commit", "rollback"])
async def test_a_handler_that_ends_the_transaction_itself_is_told_so(
    app: App, effects: psycopg.Connection[Any], word: str
) -> None:
    @app.task(transaction=True, retry=Retry(max_attempts=1))
    async def leaks(ctx: Context) -> None:
        await ctx.connection.execute("commit" if word == "commit" else "rollback")

    async with Worker(app):
        with pytest.raises(JobFailed, match=r"committed or rolled back ctx\.connection itself"):
            await (await leaks.aenqueue()).aresult(timeout="10s")


async def test_a_deferred_constraint_that_fails_at_commit_fails_the_attempt(
    app: App, effects: psycopg.Connection[Any]
) -> None:
    effects.execute("create table parent (n int primary key)")
    effects.execute("create table strict (n int references parent deferrable initially deferred)")

    @app.task(transaction=True, retry=Retry(max_attempts=1))
    async def orphan(ctx: Context) -> None:
        await ctx.connection.execute("insert into strict values (1)")

    async with Worker(app):
        with pytest.raises(JobFailed, match="ForeignKeyViolation"):
            await (await orphan.aenqueue()).aresult(timeout="10s")


async def test_a_run_that_lost_its_job_is_rolled_back(app: App, effects: psycopg.Connection[Any]) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    @app.task(transaction=True)
    async def settle(ctx: Context) -> int:
        await ctx.connection.execute("insert into effect values (%s)", (ctx.epoch,))
        if ctx.epoch == 1:
            entered.set()
            await go_on.wait()
        return ctx.epoch

    async with Worker(app):
        job = await settle.aenqueue()
        await entered.wait()
        # As if the worker had been declared dead: the job is given to another run.
        effects.execute(
            "select stepwell.fail_held(worker_id, 'declared dead', '{}') from stepwell.jobs where id = %s", (job.id,)
        )
        assert await job.aresult(timeout="10s") == 2
        go_on.set()
    assert effects.execute("select n from effect").fetchall() == [(2,)]


async def test_more_transactions_than_connections_wait_their_turn(dsn: str, effects: psycopg.Connection[Any]) -> None:
    async with App(dsn, pool_size=2) as app:

        @app.task(transaction=True)
        async def settle(ctx: Context) -> None:
            await ctx.connection.execute("insert into effect values (1)")

        async with Worker(app, concurrency=20):
            jobs = await settle.aenqueue_many([dict[str, int]()] * 50)
            await asyncio.gather(*[job.aresult(timeout="30s") for job in jobs])
    assert count(effects) == 50


async def test_ctx_connection_without_a_transaction_says_what_to_declare(app: App) -> None:
    @app.task(retry=Retry(max_attempts=1))
    async def plain(ctx: Context) -> None:
        await ctx.connection.execute("select 1")

    async with Worker(app):
        with pytest.raises(JobFailed, match="transaction=True"):
            await (await plain.aenqueue()).aresult(timeout="10s")


def test_transaction_and_process_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        App("embedded").task(transaction=True, process=True)(in_process)


def in_process(ctx: Context) -> None:
    assert threading.current_thread()


@pytest.mark.parametrize("plain", [False, True])
async def test_a_handler_whose_end_met_a_deadlock_is_run_again_and_no_attempt_is_used(
    app: App, dsn: str, effects: psycopg.Connection[Any], plain: bool
) -> None:
    go, free, runs = threading.Event(), threading.Event(), list[int]()

    def wait() -> None:
        # The second run must not end before the other session has let go: they could meet again.
        (go if len(runs) == 1 else free).wait(20)

    async def settle(ctx: Context) -> None:
        runs.append(ctx.attempt)
        await ctx.connection.execute("insert into effect values (1)")
        await asyncio.to_thread(wait)

    def settle_plain(ctx: Context) -> None:
        runs.append(ctx.attempt)
        ctx.sync_connection.execute("insert into effect values (1)")
        wait()

    @app.task(queue="elsewhere")
    async def nothing() -> None: ...

    chosen = settle_plain if plain else settle
    task = app.task(transaction=True, retry=Retry(max_attempts=1), name="settle")(chosen)
    parent = await nothing.aenqueue()
    job = await task.aenqueue()
    effects.execute("update stepwell.job set parent_id = %s, parent_key = 'c' where id = %s", (parent.id, job.id))
    async with Worker(app, queues=["default"]):
        await auntil(lambda: runs)
        with psycopg.connect(dsn) as other:
            other.execute("set deadlock_timeout = '1min'")
            other.execute("select from stepwell.job where id = %s for update", (job.id,))
            go.set()
            # It holds the parent, and waits for the job.
            await asyncio.to_thread(
                until,
                lambda: (
                    effects.execute(
                        "select from stepwell.job where id = %s for update skip locked", (parent.id,)
                    ).rowcount
                    == 0
                ),
            )
            await asyncio.to_thread(other.execute, "select from stepwell.job where id = %s for update", (parent.id,))
            other.rollback()
        free.set()
        await job.aresult(timeout="10s")
    info = await job.ainfo()
    assert info is not None
    assert (runs, info.attempt, info.epoch, info.failures, count(effects)) == ([1, 1], 1, 1, (), 1)


def hold_up_first_end(conn: psycopg.Connection[Any]) -> None:
    """The first end of `settle` waits for advisory lock 7, and is rolled back then as by a conflict."""
    conn.execute("create sequence ends")
    conn.execute(
        "create function conflict() returns trigger language plpgsql as $$begin"
        " if nextval('public.ends') = 1 then"
        "   perform pg_advisory_xact_lock(7); raise exception 'conflict' using errcode = '40001';"
        " end if;"
        " return old; end$$"
    )
    conn.execute(
        "create trigger conflict before delete on stepwell.job for each row"
        " when (old.task = 'settle') execute function conflict()"
    )


def waits_for_lock(conn: psycopg.Connection[Any]) -> bool:
    waiting = conn.execute(
        "select from pg_locks l join pg_database d on d.oid = l.database"
        " where d.datname = current_database() and l.locktype = 'advisory' and l.objid = 7 and not l.granted"
    )
    return bool(waiting.rowcount)


@pytest.mark.slow
@pytest.mark.parametrize("plain", [False, True])
async def test_a_second_try_of_a_handler_has_a_full_timeout_of_its_own(
    app: App, effects: psycopg.Connection[Any], plain: bool
) -> None:
    hold_up_first_end(effects)
    effects.execute("select pg_advisory_lock(7)")
    runs = list[float]()

    async def settle(ctx: Context, second: float) -> None:
        runs.append(time.monotonic())
        await asyncio.sleep(second if len(runs) == 2 else 0)

    def settle_plain(ctx: Context, second: float) -> None:
        runs.append(time.monotonic())
        until(lambda: len(runs) != 2 or ctx.cancelled or time.monotonic() > runs[1] + second)
        if ctx.cancelled:
            raise RuntimeError("asked to stop")

    chosen = settle_plain if plain else settle
    task = app.task(transaction=True, retry=Retry(max_attempts=1), name="settle", timeout="600ms")(chosen)
    async with Worker(app):
        for second, fits in ((0.3, True), (20.0, False)):
            runs.clear()
            effects.execute("alter sequence ends restart")
            job = await task.aenqueue(second)
            # The commit alone takes longer than the timeout: that is no fault of the handler's.
            await auntil(lambda: waits_for_lock(effects))
            await auntil(lambda: time.monotonic() > runs[0] + 0.7)
            effects.execute("select pg_advisory_unlock(7)")
            if fits:
                await job.aresult(timeout="10s")
            else:
                with pytest.raises(JobFailed, match="longer than its timeout"):
                    await job.aresult(timeout="10s")
            effects.execute("select pg_advisory_lock(7)")
            assert len(runs) == 2


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("why", ["cancel", "shutdown"])
async def test_a_handler_that_is_to_stop_while_its_end_is_rolled_back_does_not_run_again(
    app: App, effects: psycopg.Connection[Any], why: str, plain: bool
) -> None:
    hold_up_first_end(effects)
    effects.execute("select pg_advisory_lock(7)")
    go, runs = threading.Event(), list[int]()

    async def settle(ctx: Context) -> None:
        runs.append(ctx.attempt)
        await asyncio.to_thread(go.wait, 20)

    def settle_plain(ctx: Context) -> None:
        runs.append(ctx.attempt)
        go.wait(20)

    task = app.task(transaction=True, name="settle")(settle_plain if plain else settle)
    worker = Worker(app)
    heard = Heard(worker)
    async with worker:
        job = await task.aenqueue()
        await auntil(lambda: runs)
        current = worker._current  # pyright: ignore[reportPrivateUsage]
        assert current is not None
        [run] = current.slots.runners[0].running.values()
        if why == "cancel":
            # The worker hears of it later.
            effects.execute("update stepwell.job set cancelling = true")
        go.set()
        await auntil(lambda: waits_for_lock(effects))
        if why == "cancel":
            effects.execute("select pg_notify('stepwell_cancel', %s)", (worker.id,))
        else:
            worker.stop_now()
        await auntil(lambda: run.late_stop)
        effects.execute("select pg_advisory_unlock(7)")
        await auntil(lambda: run.stop_reason)
    info = await job.ainfo()
    assert info is not None
    assert (runs, info.state, info.failures) == ([1], "cancelled" if why == "cancel" else "ready", ())
    assert [event.reason for event in heard.of(JobStopAsked)] == [why]


async def test_a_handler_whose_end_is_always_rolled_back_fails_in_the_end(
    app: App, effects: psycopg.Connection[Any]
) -> None:
    effects.execute(
        "create function conflict() returns trigger language plpgsql as"
        " $$begin raise exception 'conflict' using errcode = '40001'; end$$"
    )
    effects.execute(
        "create trigger conflict before delete on stepwell.job for each row"
        " when (old.task = 'settle' and old.epoch = 1) execute function conflict()"
    )
    runs = 0

    @app.task(transaction=True, retry=Retry(max_attempts=2, initial=0))
    async def settle(ctx: Context) -> None:
        nonlocal runs
        runs += 1
        await ctx.connection.execute("insert into effect values (1)")

    async with Worker(app):
        job = await settle.aenqueue()
        await job.aresult(timeout="10s")
    info = await job.ainfo()
    assert info is not None
    assert (runs, info.attempt, [failure.type for failure in info.failures]) == (
        7,
        2,
        ["psycopg.errors.SerializationFailure"],
    )
    assert count(effects) == 1


async def test_a_transaction_that_waits_for_a_locked_job_says_who_holds_it(app: App, dsn: str) -> None:
    @app.task(transaction=True)
    async def settle(ctx: Context) -> None:
        await asyncio.to_thread(locked.wait, 20)

    locked = threading.Event()
    worker = Worker(app)
    heard = Heard(worker)
    async with worker:
        job = await settle.aenqueue()
        await auntil(lambda: worker.id)
        with psycopg.connect(dsn) as other:
            await asyncio.to_thread(
                until,
                lambda: other.execute("select from stepwell.job where worker_id is not null for update").rowcount,
            )
            locked.set()
            event = await heard.wait_for(JobLocked)
            assert (event.what, event.job_id, event.pid) == ("transaction", str(job.id), other.info.backend_pid)
        await job.aresult(timeout="10s")
