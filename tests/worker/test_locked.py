"""Another session has locked a running job: only that job waits, and the log names the session."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from statistics import median
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from waiting import Heard, auntil

from stepwell import App, Context, StepwellError, Task, Worker
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.jobs import JobLocked, JobMisfit, OutcomesHeldUp, RunsEnded

# Less than the pause before the last try, and enough for a machine with much else to do.
SOON = 3.0


@contextlib.asynccontextmanager
async def locking(dsn: str, job_id: UUID, statement: str) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
    """A session that idles in a transaction which has locked a job."""
    session = await psycopg.AsyncConnection.connect(make_conninfo(dsn, application_name="import"))
    async with session:
        await session.execute("set constraints all immediate")
        await session.execute(statement, (job_id,))  # pyright: ignore[reportArgumentType]
        yield session
        await session.rollback()


SEND = "select stepwell.send(%s, 'hello')"
CANCEL = "select stepwell.cancel(array[%s::uuid])"


async def seconds_for(work: Task[[int], int], n: int) -> float:
    """How long it takes from an enqueue to its result. A lock is waited for half a second."""
    began = time.monotonic()
    assert await (await work.aenqueue(n)).aresult(timeout="10s") == n
    return time.monotonic() - began


async def test_a_run_whose_outcome_is_tried_again_is_counted_once(app: App, dsn: str) -> None:
    go = asyncio.Event()

    @app.task
    async def first() -> str:
        await go.wait()
        return "at last"

    worker = Worker(app)
    heard = Heard(worker)
    async with worker:
        job = await first.aenqueue()
        await auntil(lambda: _runs(job))
        async with locking(dsn, job.id, SEND):
            go.set()
            await auntil(lambda: heard.of(JobLocked) != [])
            assert heard.of(RunsEnded) == []
        assert await job.aresult(timeout="20s") == "at last"
        await auntil(lambda: heard.of(RunsEnded) != [])
    assert [(run.task, run.outcome) for event in heard.of(RunsEnded) for run in event.runs] == [("first", "succeeded")]


@pytest.mark.slow
@pytest.mark.parametrize("statement", [SEND, CANCEL])
async def test_results_of_other_jobs_come_while_one_job_is_locked(app: App, dsn: str, statement: str) -> None:
    go = asyncio.Event()

    @app.task
    async def first() -> str:
        await go.wait()
        return "at last"

    @app.task
    async def work(n: int) -> int:
        return n

    worker = Worker(app, concurrency=20)
    heard = Heard(worker)
    async with worker:
        job = await first.aenqueue()
        await auntil(lambda: _runs(job))
        async with locking(dsn, job.id, statement) as session:
            go.set()
            began = time.monotonic()
            jobs = await work.aenqueue_many([{"n": n} for n in range(200)])
            assert [await other.aresult(timeout="10s") for other in jobs] == list(range(200))
            assert time.monotonic() - began < SOON
            locked = await heard.wait_for(JobLocked)
            assert (locked.job_id, locked.what) == (str(job.id), "outcome")
            assert (locked.task, locked.queue, locked.attempt) == (first.name, "default", 1)
            assert (locked.pid, locked.application) == (session.info.backend_pid, "import")
            assert f"pg_terminate_backend({locked.pid})" in locked.text()
            # Once in doubt is enough: later ones come at once.
            assert min([await seconds_for(work, n) for n in range(5)]) < 0.4
        began = time.monotonic()
        assert await job.aresult(timeout="10s") == "at last"
        assert time.monotonic() - began < SOON
    assert len(heard.of(JobLocked)) == 1
    info = await job.ainfo()
    assert info is not None
    assert (info.epoch, info.attempt, info.failures) == (1, 1, ())


@pytest.mark.slow
async def test_many_locked_jobs_hold_up_nobody_else(app: App, dsn: str) -> None:
    go = asyncio.Event()

    @app.task
    async def many(n: int) -> int:
        await go.wait()
        return n

    async with Worker(app, concurrency=100):
        jobs = await many.aenqueue_many([{"n": n} for n in range(100)])
        await auntil(lambda: _runs(jobs[-1]))
        async with await psycopg.AsyncConnection.connect(dsn) as session:
            await session.execute("select stepwell.cancel(%s::uuid[])", ([job.id for job in jobs[::2]],))
            go.set()
            began = time.monotonic()
            assert [await job.aresult(timeout="10s") for job in jobs[1::2]] == list(range(1, 100, 2))
            assert time.monotonic() - began < SOON
            await session.rollback()
        assert [await job.aresult(timeout="10s") for job in jobs[::2]] == list(range(0, 100, 2))


@pytest.mark.slow
async def test_results_of_other_jobs_come_while_a_job_is_locked_whose_args_do_not_fit(app: App, dsn: str) -> None:
    @app.task
    async def work(n: int) -> int:
        return n

    worker = Worker(app)
    heard = Heard(worker)
    with psycopg.connect(dsn) as session, psycopg.connect(dsn, autocommit=True) as conn:

        def lock(event: Telemetry) -> None:
            # Before its outcome is written.
            if isinstance(event, JobMisfit):
                session.execute(CANCEL, (event.job_id,))

        worker.subscribe(lock)
        async with worker:
            row = conn.execute("select stepwell.enqueue('work', '{\"m\": 1}')::text").fetchone()
            assert row is not None
            job = app.job(row[0])
            await heard.wait_for(JobMisfit)
            began = time.monotonic()
            assert await (await work.aenqueue(1)).aresult(timeout="10s") == 1
            assert time.monotonic() - began < SOON
            assert (await heard.wait_for(JobLocked)).job_id == str(job.id)
            session.rollback()
            await auntil(lambda: _held(job))


@pytest.mark.slow
@pytest.mark.counts_runs
async def test_steps_of_other_jobs_are_saved_while_one_job_is_locked(app: App, dsn: str) -> None:
    go = asyncio.Event()

    async def double(n: int) -> int:
        return 2 * n

    @app.task
    async def durable(ctx: Context, n: int) -> int:
        if n == 0:
            await go.wait()
        for _ in range(3):
            n = await ctx.step(double, n)
        return n

    worker = Worker(app, concurrency=20)
    heard = Heard(worker)
    async with worker:
        job = await durable.aenqueue(0)
        await auntil(lambda: _runs(job))
        async with locking(dsn, job.id, SEND):
            go.set()
            began = time.monotonic()
            jobs = await durable.aenqueue_many([{"n": n} for n in range(1, 11)])
            assert [await other.aresult(timeout="10s") for other in jobs] == [8 * n for n in range(1, 11)]
            assert time.monotonic() - began < SOON
            assert (await heard.wait_for(JobLocked)).what == "step"
        assert await job.aresult(timeout="10s") == 0
    info = await job.ainfo()
    assert info is not None
    assert (info.epoch, info.failures) == (1, ())


@pytest.mark.slow
async def test_progress_of_a_locked_job_holds_up_no_outcome(app: App, dsn: str) -> None:
    go, end = asyncio.Event(), asyncio.Event()

    @app.task
    async def tells(ctx: Context) -> None:
        await go.wait()
        while not end.is_set():
            ctx.progress(1)
            await asyncio.sleep(0.05)

    @app.task
    async def work(n: int) -> int:
        return n

    async with Worker(app):
        job = await tells.aenqueue()
        await auntil(lambda: _runs(job))
        async with locking(dsn, job.id, SEND):
            go.set()
            assert median([await seconds_for(work, n) for n in range(30)]) < 0.4
        end.set()
        await job.aresult(timeout="10s")


@pytest.mark.slow
async def test_a_worker_that_stops_writes_a_locked_outcome_if_the_lock_goes_in_time(app: App, dsn: str) -> None:
    @app.task
    async def work() -> str:
        await go.wait()
        return "written"

    go = asyncio.Event()
    worker = Worker(app)
    heard = Heard(worker)
    job = await work.aenqueue()
    async with contextlib.AsyncExitStack() as stack, worker:
        await auntil(lambda: _runs(job))
        await stack.enter_async_context(locking(dsn, job.id, SEND))
        go.set()
        await heard.wait_for(JobLocked)
        worker.stop()
        await stack.aclose()
    assert await job.aresult(timeout="10s") == "written"


@pytest.mark.slow
async def test_a_worker_that_cannot_wait_for_a_lock_any_longer_says_why(app: App, dsn: str) -> None:
    @app.task
    async def work() -> str:
        await go.wait()
        return "done"

    go = asyncio.Event()
    worker = Worker(app, lease="1.5s", renew="300ms")
    heard = Heard(worker)
    job = await work.aenqueue()
    running = asyncio.create_task(worker.run())
    await auntil(lambda: _runs(job))
    async with locking(dsn, job.id, SEND):
        go.set()
        await heard.wait_for(JobLocked)
        worker.stop()
        with pytest.raises(StepwellError, match="1 outcome that could not be written in time, its job being locked"):
            await running
    # Nobody has written anything of it: it runs again.
    async with Worker(app):
        assert await job.aresult(timeout="20s") == "done"


@pytest.mark.slow
async def test_a_worker_that_may_not_ask_who_holds_a_lock_writes_the_others_all_the_same(
    app: App, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("drop function stepwell.lock_holders")
    go = asyncio.Event()

    @app.task
    async def many(n: int) -> int:
        await go.wait()
        return n

    async with Worker(app, concurrency=20):
        jobs = await many.aenqueue_many([{"n": n} for n in range(20)])
        await auntil(lambda: _runs(jobs[-1]))
        async with locking(dsn, jobs[7].id, SEND):
            go.set()
            others = jobs[:7] + jobs[8:]
            assert [await job.aresult(timeout="10s") for job in others] == [n for n in range(20) if n != 7]
        assert await jobs[7].aresult(timeout="10s") == 7


async def test_outcomes_wait_for_a_locked_table_and_say_so(app: App, dsn: str, conn: psycopg.Connection[Any]) -> None:
    go = asyncio.Event()

    @app.task
    async def many(n: int) -> int:
        await go.wait()
        return n

    worker = Worker(app, concurrency=20)
    heard = Heard(worker)
    async with worker:
        jobs = await many.aenqueue_many([{"n": n} for n in range(20)])
        await auntil(lambda: _runs(jobs[-1]))
        async with await psycopg.AsyncConnection.connect(dsn) as session:
            await session.execute("lock table stepwell.history in share mode")
            go.set()
            await heard.wait_for(OutcomesHeldUp)
            await session.rollback()
        assert [await job.aresult(timeout="10s") for job in jobs] == list(range(20))


async def _runs(job: Any) -> bool:
    info = await job.ainfo()
    return info is not None and info.state == "running"


async def _held(job: Any) -> bool:
    info = await job.ainfo()
    return info is not None and info.misfit_until is not None
