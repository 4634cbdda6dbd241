"""The replay that collects the undos of a job: what ends it early, and what becomes of the steps behind that place."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from waiting import auntil

from stepwell import App, Cancel, Context, Fail, JobHandle, RateLimited, Retry, RetryIn, Snooze, SyncContext, Worker
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.steps import UndoFailed

SOON = Retry(max_attempts=2, initial="5ms", jitter=0)


class Trip:
    """Steps that can be undone, and what was undone. What is in `troubles` is raised between steps, each once."""

    def __init__(self) -> None:
        self.undone: list[int] = []
        self.troubles: list[BaseException] = []

    async def book(self, n: int) -> int:
        return n

    async def unbook(self, n: int) -> None:
        self.undone.append(n)

    def look(self) -> None:
        if self.troubles:
            raise self.troubles.pop()


@pytest.fixture
def trip() -> Trip:
    return Trip()


async def in_state(job: JobHandle[Any], *states: str) -> Any:
    async def is_so() -> Any:
        info = await job.ainfo()
        return info if info is not None and info.state in states else None

    return await auntil(is_so)


def two_bookings(app: App, trip: Trip, retry: Retry = SOON) -> Any:
    @app.task(name="trip", retry=retry)
    async def two(ctx: Context) -> None:
        await ctx.step(trip.book, 1, undo=trip.unbook)
        trip.look()
        await ctx.step(trip.book, 2, undo=trip.unbook)
        await ctx.wait_for("departure")

    return two


async def test_an_error_between_steps_is_tried_again_before_anything_is_undone(app: App, trip: Trip) -> None:
    task = two_bookings(app, trip)
    async with Worker(app):
        job = await task.aenqueue()
        await in_state(job, "waiting")
        # More than the task has attempts: compensation has at least twenty.
        trip.troubles += [ConnectionError("away for a moment")] * 4
        await job.acancel("no")
        info = await in_state(job, "cancelled")
    assert trip.undone == [2, 1]
    assert info.error == "no"
    assert [failure.type for failure in info.failures] == ["ConnectionError"] * 4


@pytest.mark.parametrize("how", ["gather", "first"])
async def test_an_error_in_a_branch_is_tried_again_although_another_branch_has_come_to_its_end(
    app: App, trip: Trip, how: str
) -> None:
    @app.task(retry=SOON)
    async def work(ctx: Context) -> None:
        async def branch() -> None:
            await ctx.step(trip.book, 1, undo=trip.unbook)
            trip.look()
            await ctx.step(trip.book, 2, undo=trip.unbook)
            await ctx.wait_for("departure")

        await getattr(ctx, how)(branch(), ctx.wait_for("arrival"))

    async with Worker(app):
        job = await work.aenqueue()
        await in_state(job, "waiting")
        trip.troubles.append(ConnectionError("away for a moment"))
        await job.acancel("no")
        info = await in_state(job, "cancelled")
    assert (trip.undone, info.error) == ([2, 1], "no")


async def test_a_snooze_between_steps_comes_back_later(app: App, trip: Trip) -> None:
    task = two_bookings(app, trip)
    async with Worker(app):
        job = await task.aenqueue()
        await in_state(job, "waiting")
        trip.troubles.append(Snooze("10ms"))
        await job.acancel("no")
        info = await in_state(job, "cancelled")
    assert trip.undone == [2, 1]
    assert (info.error, info.failures) == ("no", ())


@pytest.mark.parametrize("trouble", [Fail("never again"), Cancel("never again")], ids=["Fail", "Cancel"])
async def test_after_an_error_that_no_attempt_will_pass_the_job_says_what_was_not_undone(
    app: App, trip: Trip, trouble: Exception
) -> None:
    told: list[Telemetry] = []
    app.subscribe(told.append)
    task = two_bookings(app, trip)
    async with Worker(app):
        job = await task.aenqueue()
        await in_state(job, "waiting")
        trip.troubles.append(trouble)
        await job.acancel("no")
        info = await in_state(job, "cancelled")
    assert trip.undone == [1]
    why = f"the replay ended with stepwell.{type(trouble).__name__}: never again"
    assert info.error == f"no; and undoing it failed: stepwell.errors.NotUndone: 'book#2': {why}"
    [failure] = info.failures
    assert (failure.type, failure.message) == ("stepwell.errors.NotUndone", f"'book#2': {why}")
    assert [(event.key, event.error) for event in told if isinstance(event, UndoFailed)] == [("book#2", why)]


@pytest.mark.parametrize("guarded", [False, True], ids=["", "guarded by ctx.patched"])
async def test_a_step_inserted_before_an_undo_needs_a_patch(app: App, trip: Trip, guarded: bool) -> None:
    @app.task(name="trip")
    async def before(ctx: Context) -> None:
        await ctx.step(trip.book, 1, undo=trip.unbook)
        await ctx.wait_for("departure")

    async with Worker(app):
        job = await before.aenqueue()
        await in_state(job, "waiting")
    deployed = App(app.dsn)

    @deployed.task(name="trip")
    async def after(ctx: Context) -> None:
        if not guarded or ctx.patched("check"):
            await ctx.step(trip.book, 3, key="check")
        await ctx.step(trip.book, 1, undo=trip.unbook)
        await ctx.wait_for("departure")

    async with deployed, Worker(deployed):
        await job.acancel("no")
        info = await in_state(job, "cancelled")
    if guarded:
        assert (trip.undone, info.error) == ([1], "no")
    else:
        why = "'book': the code does not get that far any more"
        assert (trip.undone, info.error) == ([], f"no; and undoing it failed: stepwell.errors.NotUndone: {why}")


async def test_a_deploy_that_reads_the_saved_values_again_compensates_what_the_last_one_could_not(
    app: App, trip: Trip
) -> None:
    task = two_bookings(app, trip)
    async with Worker(app):
        job = await task.aenqueue()
        await in_state(job, "waiting")

    async def book() -> str:
        return "no number"

    wrong = App(app.dsn)

    @wrong.task(name="trip", retry=SOON)
    async def misread(ctx: Context) -> None:
        await ctx.step(trip.book, 1, undo=trip.unbook)
        await ctx.step(book, undo=print, key="book#2")

    async with wrong, Worker(wrong):
        await job.acancel("no")
        await auntil(lambda: failures_of(job))
    assert trip.undone == []
    async with Worker(app):
        info = await in_state(job, "cancelled")
    assert (trip.undone, info.error) == ([2, 1], "no")


async def failures_of(job: JobHandle[Any]) -> Any:
    info = await job.ainfo()
    return info is not None and info.failures


async def test_an_error_before_the_first_step_is_no_other_than_one_behind_it(app: App, trip: Trip) -> None:
    task = two_bookings(app, trip)
    async with Worker(app):
        job = await task.aenqueue()
        await in_state(job, "waiting")
    deployed = App(app.dsn)

    @deployed.task(name="trip")
    async def after(ctx: Context) -> None:
        trip.look()
        await ctx.step(trip.book, 1, undo=trip.unbook)

    trip.troubles += [Fail("never again"), ConnectionError("away")]
    async with deployed, Worker(deployed):
        await job.acancel("no")
        info = await in_state(job, "cancelled")
    assert trip.undone == []
    why = "'book', 'book#2': the replay ended with stepwell.Fail: never again"
    assert info.error == f"no; and undoing it failed: stepwell.errors.NotUndone: {why}"
    assert [failure.type for failure in info.failures] == ["ConnectionError", "stepwell.errors.NotUndone"]


async def test_the_last_attempt_undoes_what_it_has_found(app: App, trip: Trip) -> None:
    task = two_bookings(app, trip, Retry(max_attempts=2, backoff="fixed", initial="1ms"))
    async with Worker(app):
        job = await task.aenqueue()
        await in_state(job, "waiting")
        trip.troubles += [ConnectionError("away")] * 30
        await job.acancel("no")
        info = await in_state(job, "cancelled")
    assert (trip.undone, len(trip.troubles)) == ([1], 10)
    why = "'book#2': the replay ended with ConnectionError: away"
    assert info.error == f"no; and undoing it failed: stepwell.errors.NotUndone: {why}"


async def test_code_that_takes_no_steps_any_more_undoes_none_and_says_so(app: App, trip: Trip) -> None:
    task = two_bookings(app, trip)
    async with Worker(app):
        job = await task.aenqueue()
        await in_state(job, "waiting")
    deployed = App(app.dsn)

    @deployed.task(name="trip")
    async def after(ctx: Context) -> None: ...

    async with deployed, Worker(deployed):
        await job.acancel("no")
        info = await in_state(job, "cancelled")
    assert trip.undone == []
    why = "'book', 'book#2': the code does not get that far any more"
    assert info.error == f"no; and undoing it failed: stepwell.errors.NotUndone: {why}"


async def test_a_task_group_that_comes_to_a_new_step_is_no_error(app: App, trip: Trip) -> None:
    task = two_bookings(app, trip)
    async with Worker(app):
        job = await task.aenqueue()
        await in_state(job, "waiting")
    deployed = App(app.dsn)

    @deployed.task(name="trip", retry=SOON)
    async def grouped(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step(trip.book, 1, undo=trip.unbook))
            group.create_task(ctx.step(trip.book, 3, key="new"))
        await ctx.step(trip.book, 2, undo=trip.unbook)

    async with deployed, Worker(deployed):
        await job.acancel("no")
        info = await in_state(job, "cancelled")
    assert trip.undone == [1]
    assert [failure.message for failure in info.failures] == ["'book#2': the code does not get that far any more"]


@pytest.mark.parametrize("raised", [RuntimeError, Fail, Cancel])
async def test_a_worker_that_stops_hands_the_replay_to_the_next_one(
    app: App, trip: Trip, raised: type[Exception]
) -> None:
    replaying = threading.Event()
    hold = False

    @app.task(retry=SOON)
    def plain(ctx: SyncContext) -> None:
        for n in range(3):
            ctx.step(trip.book, n, undo=trip.unbook)
            if hold and n == 1:
                replaying.set()
                ctx.wait_cancelled(60)
            if ctx.cancelled:
                raise raised("asked to stop")
        ctx.wait_for("departure")

    async with Worker(app, grace="10ms"):
        job = await plain.aenqueue()
        await in_state(job, "waiting")
        hold = True
        await job.acancel("no")
        await asyncio.to_thread(replaying.wait, 60)
    assert trip.undone == []
    hold = False
    async with Worker(app):
        info = await in_state(job, "cancelled")
    assert trip.undone == [2, 1, 0]
    assert (info.error, info.failures) == ("no", ())


@pytest.mark.slow
async def test_a_replay_that_takes_too_long_is_tried_again(app: App, trip: Trip) -> None:
    hold = False

    @app.task(retry=SOON, timeout="3s")
    def plain(ctx: SyncContext) -> None:
        nonlocal hold
        for n in range(2):
            ctx.step(trip.book, n, undo=trip.unbook)
            if hold:
                hold = False
                ctx.wait_cancelled(60)
            if ctx.cancelled:
                raise RuntimeError("asked to stop")
        ctx.wait_for("departure")

    async with Worker(app):
        job = await plain.aenqueue()
        await in_state(job, "waiting")
        hold = True
        await job.acancel("no")
        info = await in_state(job, "cancelled")
    assert trip.undone == [1, 0]
    assert [failure.reason for failure in info.failures] == ["timeout"]


@pytest.mark.parametrize(
    "outcome", [RetryIn("10ms"), Snooze("10ms"), RateLimited("10ms")], ids=lambda o: type(o).__name__
)
async def test_an_undo_that_asks_for_time_is_tried_again_before_the_others(
    app: App, trip: Trip, outcome: Exception
) -> None:
    async def refund(n: int) -> None:
        trip.undone.append(n)
        if trip.undone.count(n) < 3:
            raise outcome

    @app.task(retry=Retry(max_attempts=3, initial="5ms"))
    async def work(ctx: Context) -> None:
        await ctx.step(trip.book, 1, undo=trip.unbook)
        await ctx.step(trip.book, 2, undo=refund)
        raise Fail("no")

    async with Worker(app):
        job = await work.aenqueue()
        info = await in_state(job, "failed")
    assert trip.undone == [2, 2, 2, 1]
    assert [step.error for step in info.steps if step.kind == "undo"] == [None, None]


async def test_a_later_run_need_not_reach_the_steps_that_are_undone_already(app: App, trip: Trip) -> None:
    async def slowly(n: int) -> None:
        trip.undone.append(n)
        if trip.undone.count(n) == 1:
            trip.troubles.append(Fail("never again"))
            raise Snooze("10ms")

    @app.task(retry=SOON)
    async def work(ctx: Context) -> None:
        await ctx.step(trip.book, 1, undo=slowly)
        trip.look()
        await ctx.step(trip.book, 2, undo=trip.unbook)
        raise Fail("no")

    async with Worker(app):
        job = await work.aenqueue()
        info = await in_state(job, "failed")
    assert (trip.undone, info.error) == ([2, 1, 1], "stepwell.Fail: no")


async def test_of_many_steps_that_were_not_undone_some_are_named(app: App, trip: Trip) -> None:
    @app.task(name="trip")
    async def before(ctx: Context) -> None:
        for n in range(12):
            await ctx.step(trip.book, n, undo=trip.unbook)
        await ctx.wait_for("departure")

    async with Worker(app):
        job = await before.aenqueue()
        await in_state(job, "waiting")
    deployed = App(app.dsn)

    @deployed.task(name="trip")
    async def after(ctx: Context) -> None: ...

    async with deployed, Worker(deployed):
        await job.acancel("no")
        info = await in_state(job, "cancelled")
    assert info.error.endswith("'book#10' and 2 more: the code does not get that far any more")


async def test_an_undo_that_asks_for_time_too_often_fails_and_the_others_run(app: App, trip: Trip) -> None:
    async def refund(n: int) -> None:
        trip.undone.append(n)
        raise RetryIn("1ms", "the bank is closed")

    @app.task(retry=SOON)
    async def work(ctx: Context) -> None:
        await ctx.step(trip.book, 1, undo=trip.unbook)
        await ctx.step(trip.book, 2, undo=refund)
        raise Fail("no")

    async with Worker(app):
        job = await work.aenqueue()
        info = await in_state(job, "failed")
    assert trip.undone == [2, 2, 1]
    assert [step.error for step in info.steps if step.kind == "undo" and step.error] == [
        "stepwell.RetryIn: the bank is closed"
    ]
