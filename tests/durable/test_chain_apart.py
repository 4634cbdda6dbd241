"""Steps of a chain that run by themselves: in a transaction, in a process, or with a priority of their own."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import psycopg
import pytest
from process_tasks import chain_in_processes
from waiting import Heard

from stepwell import App, ConfigError, Context, Done, JobFailed, JobInfo, Next, Retry, Step, SyncContext, Worker
from stepwell.errors import DuplicateTask
from stepwell.flows.chain import Chain
from stepwell.telemetry.jobs import JobSucceeded

SOON = Retry(max_attempts=3, initial=0)


@pytest.fixture
def effects(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    conn.execute("create table effect (said text)")
    return conn


def said(conn: psycopg.Connection[Any]) -> list[str]:
    return [row[0] for row in conn.execute("select said from effect order by said")]


async def test_a_step_in_a_transaction_commits_with_the_move_to_the_next(
    app: App, effects: psycopg.Connection[Any]
) -> None:
    async def book(ctx: Context, n: int) -> Next[int]:
        await ctx.connection.execute("insert into effect values (%s)", (f"booked {n} at {ctx.attempt}",))
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return Next(n + 1)

    async def look(n: int) -> int:
        assert said(effects) == ["booked 1 at 2"]
        return n + 1

    def settle(ctx: SyncContext, n: int) -> str:
        ctx.sync_connection.execute("insert into effect values (%s)", (f"settled {n}",))
        return f"settled {n}"

    chain = app.chain(
        "books", Step(book, transaction=True), look, Step(settle, transaction=True), retry=SOON, timeout="20s"
    )
    worker = Worker(app)
    heard = Heard(worker)
    async with worker:
        job = await chain.aenqueue(1)
        assert await job.aresult(timeout="20s") == "settled 3"
        info = await job.ainfo()
    assert info is not None
    assert said(effects) == ["booked 1 at 2", "settled 3"]
    assert [(step.key, step.value) for step in info.steps] == [("book", {"n": 1}), ("look", 2), ("settle", 3)]
    assert [failure.attempt for failure in info.failures] == [1]
    assert len(heard.of(JobSucceeded)) == 1


async def test_what_is_not_committed_leaves_the_job_at_its_step(app: App, effects: psycopg.Connection[Any]) -> None:
    full = True

    def begin(n: int) -> int:
        return n

    async def book(ctx: Context, n: int) -> Done[str] | int:
        await ctx.connection.execute("insert into effect values (%s)", (f"booked {n}",))
        if full:
            await asyncio.sleep(60)
        return Done("early")

    def never(n: int) -> str:
        raise AssertionError

    chain = app.chain("books", begin, Step(book, transaction=True, timeout="1.5s", retry=Retry(max_attempts=1)), never)
    async with Worker(app):
        job = await chain.aenqueue(1)
        with pytest.raises(JobFailed, match=r"its timeout of 1\.5s"):
            await job.aresult(timeout="20s")
        info = await job.ainfo()
        assert info is not None
        assert (info.cursor, info.failures[0].reason, said(effects)) == ("book", "timeout", [])
        full = False
        twin = await app.afork(job, step="book")
        assert await job.aretry(step="book", input=7)
        assert await job.aresult(timeout="20s") == await twin.aresult(timeout="20s") == "early"
    assert said(effects) == ["booked 1", "booked 7"]


async def test_a_step_in_a_transaction_is_not_committed_by_a_late_worker(
    app: App, effects: psycopg.Connection[Any]
) -> None:
    async def book(ctx: Context, n: int) -> int:
        await ctx.connection.execute("insert into effect values (%s)", (f"booked by {ctx.epoch}",))
        if ctx.epoch == 1:
            # As after a lost lease: somebody else has the job by now.
            effects.execute("update stepwell.job set epoch = 2, state = 'ready', worker_id = null")
        return n

    def end(n: int) -> int:
        return n

    chain = app.chain("books", Step(book, transaction=True), end)
    async with Worker(app, poll="50ms"):
        assert await (await chain.aenqueue(1)).aresult(timeout="20s") == 1
    assert said(effects) == ["booked by 3"]


def test_processes_do_not_find_a_chain_that_its_app_refused(app: App) -> None:
    chain_in_processes(app)
    found = Chain.made["process_tasks", "halving"]
    with pytest.raises(DuplicateTask):
        chain_in_processes(app)
    assert Chain.made["process_tasks", "halving"] is found


@pytest.mark.slow
async def test_steps_run_in_processes(app: App) -> None:
    chain = chain_in_processes(app)
    async with Worker(app):
        job, odd, wrong = [await chain.aenqueue(n) for n in (7, 8, -1)]
        second, half, third = await job.aresult(timeout="30s")
        assert half == 4
        assert os.getpid() not in (second, third)
        assert await odd.aresult(timeout="30s") == "odd"
        with pytest.raises(JobFailed, match="not by zero"):
            await wrong.aresult(timeout="30s")
        info = await wrong.ainfo()
    assert info is not None
    assert (info.cursor, len(info.failures)) == ("halve", 2)


async def test_a_step_may_have_a_priority_of_its_own(app: App) -> None:
    async def priority(ctx: Context) -> int:
        info = await app.job(ctx.id).ainfo()
        assert isinstance(info, JobInfo)
        return info.priority

    async def one(ctx: Context, seen: list[int]) -> list[int]:
        return [*seen, await priority(ctx)]

    async def two(ctx: Context, seen: list[int]) -> list[int]:
        return [*seen, await priority(ctx)]

    async def three(ctx: Context, seen: list[int]) -> list[int]:
        return [*seen, await priority(ctx)]

    async def four(ctx: Context, seen: list[int]) -> list[int]:
        return [*seen, await priority(ctx)]

    chain = app.chain("ranks", one, two, Step(three, priority=-9), four, priority=2)
    async with Worker(app):
        job = await chain.using(priority=5).aenqueue([])
        # After a step with a priority of its own the chain's holds, as with queues.
        assert await job.aresult(timeout="20s") == [5, 5, -9, 2]


def test_steps_that_cannot_be_meant_are_refused(app: App) -> None:
    def plain(n: int) -> int:
        return n

    def other(n: int) -> int:
        return n

    async def later(n: int) -> int:
        return n

    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((plain, Step(other, transaction=True, process=True)), "exclude each other"),
        ((plain, Step(later, process=True)), "process=True is for plain functions"),
        ((plain, Step(other, process=True)), "must be defined at the top level of its module"),
        ((plain, Step(other, transaction=True)), "needs a parameter 'ctx: Context'"),
        ((Step(plain, priority=3), other), "its first step has the priority of the job"),
        ((plain, Step(other, priority=99_999)), "between -32767 and 32767"),
    ]
    for steps, message in wrong:
        with pytest.raises(ConfigError) as raised:
            app.chain("wrong", *steps)
        assert message in str(raised.value)
