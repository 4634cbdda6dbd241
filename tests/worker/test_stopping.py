"""Cancel, timeout and shutdown: what is asked to stop, stops, and nothing is lost."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from waiting import Heard, auntil

from stepwell import App, Context, JobCancelled, JobFailed, Retry, Worker
from stepwell.telemetry.jobs import HandlerAbandoned

ONCE = Retry(max_attempts=1)


@pytest.mark.slow
async def test_a_running_coroutine_is_cancelled_from_another_process_within_a_second(app: App, dsn: str) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    @app.task
    async def endless(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert ctx.cancelled
            ended.set()

    async with Worker(app):
        job = await endless.aenqueue()
        await started.wait()
        began = time.monotonic()
        with App(dsn) as elsewhere:
            assert await asyncio.to_thread(elsewhere.job(job.id).cancel, "no longer needed")
        await asyncio.wait_for(ended.wait(), 1)
        with pytest.raises(JobCancelled, match="no longer needed"):
            await job.aresult(timeout="10s")
        assert time.monotonic() - began < 1
    info = await job.ainfo()
    assert info is not None
    assert (info.state, len(info.failures)) == ("cancelled", 0)


async def test_a_running_thread_is_asked_to_stop_when_cancelled(app: App) -> None:
    started = threading.Event()

    @app.task
    def endless(ctx: Context) -> None:
        started.set()
        if ctx.wait_cancelled(20):
            raise RuntimeError("stopped")

    async with Worker(app):
        job = await endless.aenqueue()
        await asyncio.to_thread(started.wait)
        assert await job.acancel()
        with pytest.raises(JobCancelled):
            await job.aresult(timeout="10s")


async def test_a_waiting_job_is_cancelled_at_once_and_an_ended_one_is_not(app: App) -> None:
    @app.task
    async def hello() -> str:
        return "hello"

    waiting = await hello.using(delay="1h").aenqueue()
    assert await waiting.acancel("why not")
    with pytest.raises(JobCancelled, match="why not"):
        await waiting.aresult(timeout="10s")
    assert not await waiting.acancel()
    async with Worker(app):
        done = await hello.aenqueue()
        await done.aresult(timeout="10s")
    assert not await done.acancel()


async def test_a_timeout_cancels_a_coroutine_and_is_retried(app: App) -> None:
    @app.task(timeout="50ms", retry=Retry(max_attempts=2, initial=0))
    async def slow(ctx: Context) -> str:
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        return "in time"

    async with Worker(app):
        job = await slow.aenqueue()
        assert await job.aresult(timeout="10s") == "in time"
        info = await job.ainfo()
    assert info is not None
    [failure] = info.failures
    assert (failure.reason, failure.type) == ("timeout", "TimeoutError")
    assert "50ms" in failure.message


async def test_a_coroutine_that_will_not_stop_is_given_up_but_keeps_its_slot(app: App) -> None:
    let_go = asyncio.Event()

    @app.task(timeout="50ms", timeout_grace="50ms", retry=ONCE)
    async def stubborn() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    worker = Worker(app, concurrency=1)
    heard = Heard(worker)
    async with worker:
        job = await stubborn.aenqueue()
        with pytest.raises(JobFailed, match="TimeoutError"):
            await job.aresult(timeout="10s")
        assert (await heard.wait_for(HandlerAbandoned)).job_id == str(job.id)
        second = await stubborn.aenqueue()
        with pytest.raises(TimeoutError, match="is ready"):
            await second.aresult(timeout="500ms")
        let_go.set()
        assert await second.aresult(timeout="10s") is None


async def test_a_thread_that_looks_at_cancelled_ends_at_its_timeout(app: App) -> None:
    @app.task(timeout="50ms", retry=ONCE)
    def looks(ctx: Context) -> None:
        ctx.wait_cancelled()
        raise RuntimeError("asked to stop")

    async with Worker(app):
        with pytest.raises(JobFailed, match="longer than its timeout"):
            await (await looks.aenqueue()).aresult(timeout="10s")


async def test_shutdown_waits_for_what_runs(app: App) -> None:
    started = asyncio.Event()

    @app.task
    async def careful() -> str:
        started.set()
        await asyncio.sleep(0.3)
        return "done"

    async with Worker(app):
        job = await careful.aenqueue()
        await started.wait()
    assert await job.aresult(timeout="60s") == "done"


async def test_shutdown_hands_back_what_does_not_end_in_time_and_burns_no_attempt(app: App) -> None:
    runs: list[int] = []

    @app.task
    async def endless(ctx: Context) -> None:
        runs.append(ctx.attempt)
        await asyncio.Event().wait()

    jobs = await endless.aenqueue_many([dict[str, int]()] * 3)
    worker = Worker(app, grace="100ms")
    async with worker:
        await auntil(lambda: len(runs) == 3)
    for job in jobs:
        info = await job.ainfo()
        assert info is not None
        assert (info.state, info.attempt, info.epoch, len(info.failures)) == ("ready", 0, 1, 0)


@pytest.mark.parametrize("turns", [1, 2, 3, 5])
async def test_a_second_ctrl_c_right_after_the_first_burns_no_attempt(app: App, turns: int) -> None:
    started = threading.Event()
    end = threading.Event()

    @app.task(retry=ONCE)
    def deaf() -> None:
        started.set()
        end.wait(20)

    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    others = asyncio.all_tasks() - {running}
    await worker.started()
    job = await deaf.aenqueue()
    await asyncio.to_thread(started.wait)
    running.cancel()  # as asyncio.run does after the first
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in asyncio.all_tasks() - others:  # and after the second
        task.cancel()
    await asyncio.wait([running])
    end.set()
    info = await job.ainfo()
    assert info is not None
    assert (info.state, info.attempt, len(info.failures)) == ("ready", 0, 0)
