"""Subscribers of a worker hear of steps, with the job, its task, queue and attempt."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from stepwell import App, Context, JobFailed, Retry, Worker
from stepwell.telemetry import steps as telemetry


def _about(event: Any) -> tuple[str, str, str, int]:
    return event.job_id, event.task, event.queue, event.attempt


@pytest.mark.counts_runs
async def test_each_saved_step_and_each_resumption_is_heard(app: App) -> None:
    heard: list[Any] = []

    @app.task(queue="own")
    async def work(ctx: Context) -> int:
        one = await ctx.step(abs, -1)
        await ctx.sleep("1.01s")
        async with ctx.transaction("end"):
            pass
        return one

    worker = Worker(app, queues=["own"])
    worker.subscribe(heard.append)
    async with worker:
        job = await work.aenqueue()
        assert await job.aresult(timeout="10s") == 1
    saved = [event for event in heard if isinstance(event, telemetry.StepSaved)]
    assert [(event.key, event.kind, event.failed) for event in saved] == [
        ("abs", "step", False),
        ("end", "transaction", False),
    ]
    resumed = [event for event in heard if isinstance(event, telemetry.JobResumed)]
    assert [event.steps for event in resumed] == [2]
    assert {_about(event) for event in (*saved, *resumed)} == {(str(job.id), "work", "own", 1)}


@pytest.mark.counts_runs
async def test_warnings_of_a_run_are_heard_too(app: App) -> None:
    heard: list[Any] = []

    def broken(_: int, __: BaseException) -> float:
        raise RuntimeError("no delay")

    async def fail() -> None:
        raise OSError("full")

    async def unbook(_: Any) -> None:
        raise OSError("closed")

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> None:
        await ctx.step(abs, -1, undo=unbook, retry=Retry(max_attempts=1))
        try:
            await ctx.sleep("1.01s")
        except BaseException:
            with contextlib.suppress(BaseException):
                await ctx.sleep("1.01s")
            raise
        await ctx.step(fail, retry=Retry(max_attempts=2, backoff=broken))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stepwell.values.retry._FAILED_PAUSE", 0.001)
        worker = Worker(app)
        worker.subscribe(heard.append)
        async with worker:
            job = await work.aenqueue()
            with pytest.raises(Exception, match="full"):
                await job.aresult(timeout="10s")
    kinds = (telemetry.SuspensionCaught, telemetry.BackoffFailed, telemetry.UndoFailed)
    for kind in kinds:
        assert [_about(event)[:3] for event in heard if isinstance(event, kind)] == [(str(job.id), "work", "default")]


async def test_a_back_off_function_that_fails_is_heard_of_wherever_it_is(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []

    def broken(_: int, __: BaseException) -> float:
        raise RuntimeError("no delay")

    async def fail() -> None:
        raise OSError("full")

    async def hang() -> None:
        await asyncio.sleep(60)

    twice = Retry(max_attempts=2, backoff=broken)
    tasks = [
        app.task(name="fails", retry=twice)(fail),
        app.task(name="hangs", retry=twice, timeout="10ms")(hang),
        app.chain("failing chain", fail, retry=twice),
        app.chain("hanging chain", hang, retry=twice, timeout="10ms"),
    ]
    monkeypatch.setattr("stepwell.values.retry._FAILED_PAUSE", 0.001)
    app.subscribe(heard.append)
    jobs = await app.aenqueue_many([task.call() for task in tasks])
    async with Worker(app):
        for job in jobs:
            with pytest.raises(JobFailed):
                await job.aresult(timeout="10s")
    for job, task, of in zip(jobs, tasks, ("fails", "hangs", "step 'fail' of", "step 'hang' of"), strict=True):
        told = [event for event in heard if isinstance(event, telemetry.BackoffFailed) and event.job_id == str(job.id)]
        assert [_about(event)[1:] for event in told] == [(task.name, "default", 1), (task.name, "default", 2)]
        assert told[0].of.startswith(of)


async def test_a_run_that_is_replayed_after_each_step_is_not_blamed_for_that(app: App) -> None:
    heard: list[Any] = []

    @app.task
    async def work(ctx: Context) -> int:
        await ctx.now()
        return await ctx.step(abs, -1) + await ctx.step(abs, -2)

    worker = Worker(app, always_replay=True)
    worker.subscribe(heard.append)
    async with worker:
        assert await (await work.aenqueue()).aresult(timeout="10s") == 3
    assert len([event for event in heard if isinstance(event, telemetry.JobResumed)]) == 3
    assert not [event for event in heard if isinstance(event, telemetry.SuspensionCaught)]


async def test_nobody_pays_for_steps_that_nobody_hears(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(*_: Any) -> Any:
        raise AssertionError("made an event that nobody wants")

    @app.task
    async def work(ctx: Context) -> int:
        return await ctx.step(abs, -1)

    # Its level stays that of the class: by that the worker decides.
    made.level = telemetry.StepSaved.level  # pyright: ignore[reportFunctionMemberAccess]
    monkeypatch.setattr("stepwell.durable.journal.StepSaved", made)
    async with Worker(app):
        assert await (await work.aenqueue()).aresult(timeout="10s") == 1
