"""One job cannot hurt another, nor the worker, whatever it or the code around it does."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import psycopg
import pytest
from process_tasks import register
from waiting import Heard, auntil

from stepwell import App, Context, JobCancelled, JobFailed, Retry, Worker
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.jobs import JobStarted

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


@pytest.mark.slow
async def test_context_variables_do_not_pass_from_job_to_job(app: App) -> None:
    @app.task
    async def on_loop(name: str) -> str:
        before = tenant.get()
        tenant.set(name)
        await asyncio.sleep(0)
        return before

    @app.task
    def in_thread(name: str) -> str:
        before = tenant.get()
        tenant.set(name)
        return before

    async with Worker(app, concurrency=3):
        for task in (on_loop, in_thread):
            jobs = await task.aenqueue_many([{"name": f"tenant{n}"} for n in range(60)])
            seen = await asyncio.gather(*[job.aresult(timeout="20s") for job in jobs])
            assert set(seen) == {"nobody"}


async def test_a_subscriber_that_raises_is_dropped_and_nothing_is_lost(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def note() -> str:
        return "ran"

    def refuse(event: Telemetry) -> None:
        raise RuntimeError(f"no {type(event).__name__}, please")

    worker = Worker(app, concurrency=1)
    worker.subscribe(refuse)
    heard = Heard(worker)
    async with worker:
        for _ in range(3):
            assert await (await note.aenqueue()).aresult(timeout="10s") == "ran"
    assert len(heard.of(JobStarted)) == 3
    assert caplog.text.count("a subscriber to events failed") == 1


async def test_a_backoff_that_fails_costs_neither_slot_nor_job(app: App) -> None:
    def broken(attempt: int, error: BaseException) -> float:
        raise LookupError("no idea")

    policy = Retry(max_attempts=2, backoff=broken, retry_on=(ValueError,))

    @app.task(retry=policy, timeout="50ms")
    async def slow() -> None:
        await asyncio.sleep(60)

    @app.task(retry=policy)
    async def wrong() -> None:
        raise ValueError("wrong")

    async with Worker(app, concurrency=1):
        for task in (slow, wrong):
            job = await task.aenqueue()

            async def waits(job: Any = job) -> bool:
                info = await job.ainfo()
                return info is not None and info.state == "scheduled" and info.attempt == 1

            await auntil(waits)


async def test_a_generator_exit_is_a_failure_like_any_other(app: App) -> None:
    @app.task(retry=Retry(max_attempts=1))
    async def odd() -> None:
        raise GeneratorExit("as if")

    async with Worker(app, concurrency=1):
        for _ in range(2):
            with pytest.raises(JobFailed, match="GeneratorExit"):
                await (await odd.aenqueue()).aresult(timeout="10s")


async def test_a_notification_alone_cancels_nothing(app: App, conn: psycopg.Connection[Any]) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def careful() -> str:
        started.set()
        await go_on.wait()
        return "done"

    async with Worker(app) as worker:
        job = await careful.aenqueue()
        await started.wait()
        for payload in (str(job.id), str(worker.id)):
            conn.execute("select pg_notify('stepwell_cancel', %s)", (payload,))
        assert await (await app.tasks["careful"].using(delay="200ms").aenqueue()).ainfo() is not None
        row = conn.execute("select state::text, cancelling from stepwell.jobs where id = %s", (job.id,)).fetchone()
        assert row == ("running", False)
        go_on.set()
        assert await job.aresult(timeout="10s") == "done"


@pytest.mark.slow
async def test_large_results_are_all_written(app: App) -> None:
    @app.task
    async def large() -> str:
        return "x" * 1_000_000

    async with Worker(app):
        jobs = await large.aenqueue_many([dict[str, int]()] * 60)
        for job in jobs:
            assert len(await job.aresult(timeout="30s")) == 1_000_000


async def test_an_outcome_that_a_trigger_refuses_is_kept_and_holds_up_no_other(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    @app.task
    async def note(n: int) -> int:
        return n

    conn.execute("create function refuse() returns trigger language plpgsql as $$ begin raise 'not now'; end $$")
    conn.execute(
        "create trigger refuse before delete on stepwell.job for each row "
        "when (old.args ->> 'n' = '7') execute function refuse()"
    )
    async with Worker(app):
        jobs = await note.aenqueue_many([{"n": n} for n in range(20)])
        for n, job in enumerate(jobs):
            if n != 7:
                assert await job.aresult(timeout="10s") == n
        conn.execute("drop trigger refuse on stepwell.job")
        assert await jobs[7].aresult(timeout="10s") == 7
    info = await jobs[7].ainfo()
    assert info is not None
    assert (info.epoch, len(info.failures)) == (1, 0)


async def test_a_plain_function_that_returns_because_it_was_asked_to_stop_has_not_succeeded(app: App) -> None:
    @app.task
    def looks(ctx: Context) -> str:
        ctx.progress(0)
        return "half-way" if ctx.wait_cancelled(20) else "done"

    worker = Worker(app, grace="50ms")
    heard = Heard(worker)
    async with worker:
        job = await looks.aenqueue()
        await heard.wait_for(JobStarted)
    info = await job.ainfo()
    assert info is not None
    assert (info.state, info.attempt) == ("ready", 0)
    second = Worker(app)
    again = Heard(second)
    async with second:
        await again.wait_for(JobStarted)
        await job.acancel()
        with pytest.raises(JobCancelled):
            await job.aresult(timeout="10s")


@pytest.mark.slow
async def test_one_process_job_does_not_start_a_process_per_slot(app: App, conn: psycopg.Connection[Any]) -> None:
    import multiprocessing

    square = register(app)["square"]
    async with Worker(app, concurrency=50, process_slots=2):
        assert (await (await square.aenqueue(3)).aresult(timeout="30s"))[1] == 9
        assert len(multiprocessing.active_children()) <= 2


@pytest.mark.slow
async def test_a_running_process_is_cancelled(app: App) -> None:
    tasks = register(app)
    worker = Worker(app)
    heard = Heard(worker)
    async with worker:
        await (await tasks["square"].aenqueue(1)).aresult(timeout="30s")
        job = await tasks["progress"].aenqueue("/nowhere/at/all")

        async def progress() -> Any:
            info = await job.ainfo()
            return info and info.progress

        await auntil(progress)
        await job.acancel("enough")
        with pytest.raises(JobCancelled, match="enough"):
            await job.aresult(timeout="10s")
    assert heard.events
