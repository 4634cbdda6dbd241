"""The bus: every event of a job names it, and nothing is built that nobody wants."""

from __future__ import annotations

import asyncio

from stepwell import App, Context, Worker
from stepwell.telemetry.bus import EventBus, JobEvent, Telemetry
from stepwell.telemetry.enqueue import CancelAsked, GroupEnqueued, JobEnqueued
from stepwell.telemetry.jobs import JobClaimed, JobStarted, JobSucceeded
from stepwell.telemetry.steps import StepSaved
from stepwell.telemetry.supervisor import MemoryLimitTooLow, RunLimitReached
from stepwell.testing import drain
from stepwell.worker.process_limits import LimitWatch, ProcessLimits


async def part() -> int:
    return 1


async def test_a_job_is_on_the_bus_from_its_enqueue_to_its_end(dsn: str) -> None:
    app = App(dsn)
    heard: list[Telemetry] = []
    by_worker: list[Telemetry] = []
    app.subscribe(heard.append)

    @app.task
    async def child() -> int:
        return 1

    @app.task
    async def work(ctx: Context) -> int:
        return await ctx.step(part) + await ctx.spawn(child)

    async with app:
        worker = Worker(app, always_replay=False)
        worker.subscribe(by_worker.append)
        async with worker:
            job = await work.aenqueue()
            assert await job.aresult(timeout="20s") == 2
    mine = [event for event in heard if isinstance(event, JobEvent) and event.job_id == str(job.id)]
    assert all((event.task, event.queue) == ("work", "default") for event in mine)
    of_runs = [event for event in mine if not isinstance(event, JobEnqueued)]  # which may come late
    assert of_runs[-1] == JobSucceeded(str(job.id), "work", "default", 1, of_runs[-1].seconds)  # pyright: ignore
    kinds = [type(event) for event in mine]
    assert kinds.count(JobEnqueued) == 1
    order = [kinds.index(kind) for kind in (JobClaimed, JobStarted, StepSaved, JobSucceeded)]
    assert order == sorted(order)
    [spawned] = [event for event in heard if isinstance(event, JobEnqueued) and event.parent_id is not None]
    assert (spawned.task, spawned.parent_id) == ("child", str(job.id))
    assert [event for event in heard if event in by_worker] == by_worker, "the app hears all that its worker reports"
    assert not any(isinstance(event, JobEnqueued) and event.parent_id is None for event in by_worker)


def test_a_producer_hears_of_enqueues_and_cancels(dsn: str) -> None:
    app = App(dsn)
    heard: list[Telemetry] = []

    @app.task(unique="{n}")
    def work(n: int) -> None: ...

    with app:
        app.subscribe(heard.append)
        job = work.enqueue(1)
        work.enqueue(1)
        others = work.enqueue_many([{"n": 2}, {"n": 3}])
        with app.database.connect() as connection, connection.transaction():
            inside = work.using(connection=connection).enqueue(4)
        group = app.group([work.call(5)])
        assert job.cancel("no more")
        assert app.cancel_jobs(task=work) == 4
    about = [(str(each.id), "work", "default", 0) for each in (job, *others, inside)]
    assert heard[:5] == [
        *(JobEnqueued(*each) for each in about[:3]),
        JobEnqueued(*about[3], in_transaction=True),
        GroupEnqueued(str(group.id), 1),
    ], "a job that had its key already is not enqueued again"
    assert heard[5] == CancelAsked(*about[0], "cancelled", "no more")
    assert {event.job_id for event in heard[6:] if isinstance(event, CancelAsked)} > {each[0] for each in about[1:]}
    assert len(heard) == 10


def test_a_fork_and_a_triggered_schedule_are_jobs_that_were_enqueued(dsn: str) -> None:
    heard: list[Telemetry] = []

    with App(dsn) as app:

        @app.task(queue="mail")
        async def work(ctx: Context) -> int:
            return await ctx.step(part)

        job = work.enqueue()
        drain(app)
        app.schedule_task(work, "1d", name="daily")
        app.subscribe(heard.append)
        forked = app.fork(job, step="part")
        triggered = app.schedule_named("daily").trigger()
        with app.database.connect() as connection, connection.transaction():
            inside = app.schedule_named("daily").trigger(connection=connection)
    assert heard == [
        JobEnqueued(str(forked.id), "work", "mail", 0),
        JobEnqueued(str(triggered.id), "work", "mail", 0),
        JobEnqueued(str(inside.id), "work", "mail", 0, in_transaction=True),
    ]


def test_without_a_subscriber_no_event_of_a_job_is_wanted() -> None:
    app = App("postgresql://nowhere/")
    worker_bus = EventBus(app.events)
    assert not any(worker_bus.wanted(kind) for kind in (JobEnqueued, JobClaimed, JobStarted, JobSucceeded, StepSaved))
    app.subscribe(lambda _: None)
    assert worker_bus.wanted(JobClaimed)


async def test_a_limit_of_a_process_that_is_reached_is_on_the_bus(app: App) -> None:
    heard: list[Telemetry] = []
    app.subscribe(heard.append)
    for limits in (ProcessLimits(jobs=0), ProcessLimits(memory=1)):
        worker = Worker(app)
        watch = asyncio.create_task(LimitWatch(worker, limits, app.events).run())
        await asyncio.sleep(0)
        worker.stop()
        await watch
    assert [type(event) for event in heard] == [RunLimitReached, MemoryLimitTooLow]
