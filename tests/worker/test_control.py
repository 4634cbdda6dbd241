"""The fleet does as it is told: within a second, and also when it was told before it started."""

from __future__ import annotations

import asyncio
import time
from math import inf
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from deaf import deaf
from waiting import Heard, auntil

from stepwell import App, ConfigError, Context, JobCancelled, Worker, WorkerNotFound
from stepwell.postgres import queries
from stepwell.telemetry.jobs import JobsHandedBack
from stepwell.telemetry.worker import ListenerDeaf, PauseChanged, StopAsked, WorkerStopped, WorkerStopping


@pytest.mark.slow
async def test_a_paused_queue_rests_and_the_others_go_on(app: App) -> None:
    @app.task
    async def work() -> None: ...

    await app.apause("mail")
    resting = await work.using(queue="mail").aenqueue()
    async with Worker(app, queues=["mail", "default"]):
        await (await work.aenqueue()).aresult("20s")
        info = await resting.ainfo()
        assert info is not None
        assert info.state == "ready"
        assert await app.aresume("mail")
        began = time.monotonic()
        await resting.aresult("20s")
        assert time.monotonic() - began < 1
    assert not await app.aresume("mail")


@pytest.mark.slow
@pytest.mark.parametrize("scope", [{"task": "slow"}, {"everything": True}, {"queue": "default"}])
async def test_what_was_claimed_ahead_is_handed_back_when_it_is_paused(app: App, scope: dict[str, object]) -> None:
    running: asyncio.Queue[UUID] = asyncio.Queue()
    gate = asyncio.Event()

    @app.task
    async def slow(ctx: Context) -> None:
        running.put_nowait(UUID(ctx.id))
        await gate.wait()

    worker = Worker(app, concurrency=1)
    heard = Heard(worker)
    async with worker:
        jobs = [await slow.aenqueue() for _ in range(20)]
        # Not always the first one: the worker may have begun to listen after it was enqueued.
        begun = await running.get()
        # As if quick jobs had made it claim ahead.
        run = worker._current  # pyright: ignore[reportPrivateUsage]
        assert run is not None
        [fetcher], [runner] = run.slots.fetchers, run.slots.runners
        fetcher._rate = 1e6  # pyright: ignore[reportPrivateUsage]
        fetcher._measured_at = inf  # pyright: ignore[reportPrivateUsage]
        runner.freed.set()
        await auntil(lambda: runner.unstarted)
        began = time.monotonic()
        await app.apause(**scope)  # pyright: ignore[reportArgumentType]
        await heard.wait_for(JobsHandedBack)
        assert time.monotonic() - began < 1
        await auntil(lambda: not runner.unstarted)
        gate.set()
        await app.job(begun).aresult("20s")
        states = [info.state for info in [await job.ainfo() for job in jobs if job.id != begun] if info]
        assert states == ["ready"] * 19
        assert await app.aresume(**scope)  # pyright: ignore[reportArgumentType]
        for job in jobs:
            await job.aresult("20s")
        await auntil(lambda: len(heard.of(PauseChanged)) == 2)


async def test_a_pause_is_obeyed_by_workers_that_start_later_and_ends_for_all(app: App) -> None:
    @app.task
    async def work() -> None: ...

    await app.apause(task=work)
    job = await work.aenqueue()
    async with Worker(app), Worker(app):
        await app.apause(task="another")
        with pytest.raises(TimeoutError):
            await job.aresult("300ms")
        await app.aresume(task="work")
        await job.aresult("20s")


async def test_one_worker_is_paused_by_its_id(app: App) -> None:
    @app.task
    async def work() -> None: ...

    async with Worker(app) as paused, Worker(app) as other:
        assert paused.id is not None
        heard = Heard(paused)
        await app.apause(worker=paused.id)
        await heard.wait_for(PauseChanged)
        for _ in range(5):
            job = await work.aenqueue()
            await job.aresult("20s")
            info = await job.ainfo()
            assert info is not None
            assert str(info.worker_id) == other.id
        listed = await app.database.afetch(queries.reads.workers())
        assert {str(worker.id) for worker in listed if worker.paused} == {paused.id}


@pytest.mark.slow
async def test_a_stop_drains_those_that_run_and_not_those_that_start_later(app: App) -> None:
    running = asyncio.Event()
    gate = asyncio.Event()

    @app.task
    async def slow() -> str:
        running.set()
        await gate.wait()
        return "done"

    first, second = Worker(app), Worker(app, queues=["other"])
    heard = Heard(first)
    runs, others = asyncio.create_task(first.run()), asyncio.create_task(second.run())
    await first.started()
    await second.started()
    job = await slow.aenqueue()
    await running.wait()
    began = time.monotonic()
    assert await app.astop("default") == 1
    await heard.wait_for(StopAsked)
    assert time.monotonic() - began < 1
    await heard.wait_for(WorkerStopping)  # now no claim is under way any more
    later = await slow.aenqueue()
    gate.set()
    await asyncio.wait_for(runs, 20)
    await heard.wait_for(WorkerStopped)
    assert await job.aresult("20s") == "done"
    assert not others.done()
    info = await later.ainfo()
    assert info is not None
    assert info.state == "ready"
    async with Worker(app):
        assert await later.aresult("20s") == "done"
    assert await app.astop(everything=True) == 1
    await asyncio.wait_for(others, 20)


@pytest.mark.slow
async def test_a_deaf_worker_obeys_too(app: App, dsn: str, open_dir: Path) -> None:
    with deaf(dsn, open_dir) as silent:
        async with App(silent) as hard_of_hearing:

            @hard_of_hearing.task
            async def work() -> None: ...

            worker = Worker(hard_of_hearing)
            heard = Heard(worker)
            runs = asyncio.create_task(worker.run())
            await heard.wait_for(ListenerDeaf)
            began = time.monotonic()
            assert await app.astop(everything=True) == 1
            await asyncio.wait_for(runs, 20)
            assert time.monotonic() - began < 3


async def test_all_that_match_are_cancelled(app: App) -> None:
    running = asyncio.Event()

    @app.task
    async def slow() -> None:
        running.set()
        await asyncio.sleep(600)

    @app.task
    async def quick() -> None: ...

    async with Worker(app, concurrency=1):
        jobs = [await slow.aenqueue() for _ in range(5)]
        await running.wait()
        jobs += await app.aenqueue_many([slow.call() for _ in range(1200)])
        other = await quick.using(delay="1h").aenqueue()
        assert await app.acancel_jobs(task=slow, reason="enough") == 1205
        for job in jobs[:6]:
            with pytest.raises(JobCancelled, match="enough"):
                await job.aresult("20s")
        info = await other.ainfo()
        assert info is not None
        assert info.state == "scheduled"
    assert await app.acancel_jobs("default") == 1
    assert await app.acancel_jobs(everything=True) == 0


async def test_what_is_meant_must_be_said(app: App) -> None:
    with pytest.raises(ConfigError, match=r'apause was given nothing: give a queue.*apause\("mail"\)'):
        await app.apause()
    with pytest.raises(ConfigError, match="astop was given a queue and everything="):
        await app.astop("mail", everything=True)
    with pytest.raises(ConfigError, match="worker is 'x'"):
        await app.aresume(worker="x")
    with pytest.raises(WorkerNotFound, match="no worker"):
        await app.apause(worker=uuid4())


def test_sync_code_can_tell_them_too(dsn: str) -> None:
    with App(dsn) as app:
        app.pause("mail")
        assert app.resume("mail")
        assert app.stop(everything=True) == 0
        assert app.cancel_jobs("mail") == 0
