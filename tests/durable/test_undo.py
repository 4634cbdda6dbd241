"""What was done is undone in reverse when a job fails or is cancelled, each by a step of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from waiting import auntil

from stepwell import App, Context, Fail, JobCancelled, JobFailed, Retry, SyncContext, Worker

ONCE = Retry(max_attempts=1)
SOON = Retry(max_attempts=3, initial="5ms", jitter=0)


class Booking:
    """Steps that can be undone, and what was done."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def book(self, what: str) -> str:
        self.log.append(f"book {what}")
        return f"ticket for {what}"

    async def unbook(self, ticket: str) -> None:
        self.log.append(f"return {ticket}")


@pytest.fixture
def booking() -> Booking:
    return Booking()


async def test_a_job_that_fails_for_good_is_undone_in_reverse(app: App, booking: Booking) -> None:
    @app.task(retry=SOON)
    async def trip(ctx: Context) -> None:
        await ctx.step(booking.book, "train", undo=booking.unbook)
        await ctx.step(booking.book, "hotel", undo=lambda: booking.log.append("hotel, by nothing"))
        await ctx.step(booking.book, "map")
        if ctx.attempt < 3:
            raise ConnectionError("not yet")
        raise Fail("sold out")

    async with Worker(app):
        job = await trip.aenqueue()
        with pytest.raises(JobFailed, match="sold out"):
            await job.aresult(timeout="10s")
        info = await job.ainfo()
    assert booking.log == ["book train", "book hotel", "book map", "hotel, by nothing", "return ticket for train"]
    assert info is not None
    assert (info.state, info.error) == ("failed", "stepwell.Fail: sold out")
    assert [step.key for step in info.steps if step.kind == "undo"] == ["undo:book#2", "undo:book"]


async def test_a_job_that_waits_is_undone_when_it_is_cancelled(app: App, booking: Booking) -> None:
    @app.task
    async def trip(ctx: Context) -> None:
        await ctx.step(booking.book, "train", undo=booking.unbook)
        await ctx.wait_for("departure")

    async with Worker(app):
        job = await trip.aenqueue()
        await auntil(lambda: in_state(job, "waiting"))
        assert await job.acancel("rain")
        with pytest.raises(JobCancelled, match="rain"):
            await job.aresult(timeout="10s")
        assert not await job.acancel()
    assert booking.log == ["book train", "return ticket for train"]


async def in_state(job: Any, state: str) -> bool:
    info = await job.ainfo()
    return info is not None and info.state == state


async def test_a_job_that_runs_is_undone_when_it_is_cancelled(app: App, booking: Booking) -> None:
    running = asyncio.Event()

    async def travel() -> None:
        running.set()
        await asyncio.sleep(60)

    @app.task
    async def trip(ctx: Context) -> None:
        await ctx.step(booking.book, "train", undo=booking.unbook)
        await ctx.step(travel)

    async with Worker(app):
        job = await trip.aenqueue()
        await running.wait()
        await job.acancel("stop")
        with pytest.raises(JobCancelled, match="stop"):
            await job.aresult(timeout="10s")
    assert booking.log == ["book train", "return ticket for train"]


@pytest.mark.parametrize("retry", [None, SOON], ids=["", "with tries of its own"])
async def test_a_step_that_was_done_when_its_job_was_cancelled_is_undone_too(
    app: App, conn: psycopg.Connection[Any], booking: Booking, retry: Retry | None
) -> None:
    async def book(what: str) -> str:
        return booking.book(what)

    contexts: dict[str, Context] = {}
    go = {"first": asyncio.Event(), "second": asyncio.Event()}

    @app.task
    async def trip(ctx: Context, name: str) -> None:
        contexts[name] = ctx
        await go[name].wait()
        await ctx.step(book, name, undo=booking.unbook, retry=retry)

    async with Worker(app):
        first, second = await trip.aenqueue("first"), await trip.aenqueue("second")
        await auntil(lambda: len(contexts) == 2)
        with conn.transaction():
            # The save of the first is held up, so that of the second waits for its turn.
            conn.execute("select from stepwell.job where id = %s for update", (first.id,))
            for name in ("first", "second"):
                go[name].set()
                await auntil(lambda name=name: f"book {name}" in booking.log)
            await second.acancel()
            await auntil(lambda: contexts["second"].cancelled)
        with pytest.raises(JobCancelled):
            await second.aresult(timeout="10s")
        await first.aresult(timeout="10s")
    assert booking.log == ["book first", "book second", "return ticket for second"]


async def test_an_undo_is_tried_again_and_one_that_fails_does_not_stop_the_others(app: App, booking: Booking) -> None:
    tries: list[str] = []

    def flaky(_: str) -> None:
        tries.append("flaky")
        if len(tries) < 3:
            raise ConnectionError("busy")

    def hopeless(_: str) -> None:
        tries.append("hopeless")
        raise ConnectionError("gone")

    @app.task(retry=SOON)
    async def trip(ctx: Context) -> None:
        await ctx.step(booking.book, "train", undo=booking.unbook)
        await ctx.step(booking.book, "hotel", undo=hopeless, retry=Retry(max_attempts=2, initial="5ms"))
        await ctx.step(booking.book, "car", undo=flaky)
        raise Fail("no")

    async with Worker(app):
        job = await trip.aenqueue()
        with pytest.raises(JobFailed, match="no"):
            await job.aresult(timeout="10s")
        info = await job.ainfo()
    assert tries == ["flaky"] * 3 + ["hopeless"] * 2
    assert booking.log[-1] == "return ticket for train"
    assert info is not None
    failed = next(step for step in info.steps if step.key == "undo:book#2")
    assert (failed.kind, failed.error) == ("undo", "ConnectionError: gone")


async def test_steps_in_branches_are_undone_too_and_a_retry_begins_anew(app: App, booking: Booking) -> None:
    @app.task(retry=ONCE)
    async def trip(ctx: Context) -> str:
        async def one(what: str) -> None:
            await ctx.step(booking.book, what, undo=booking.unbook)
            await ctx.wait_for("go", timeout="20ms")

        await ctx.gather(one("train"), one("hotel"))
        if len(booking.log) <= 2:
            raise ValueError("first time")
        return "went"

    async with Worker(app):
        job = await trip.aenqueue()
        with pytest.raises(JobFailed, match="first time"):
            await job.aresult(timeout="10s")
        assert sorted(booking.log[2:]) == ["return ticket for hotel", "return ticket for train"]
        assert await job.aretry()
        assert await job.aresult(timeout="10s") == "went"
    assert sorted(booking.log[4:]) == ["book hotel", "book train"]


async def test_a_plain_task_is_undone_as_well(app: App, booking: Booking) -> None:
    @app.task(retry=ONCE)
    def trip(ctx: SyncContext) -> None:
        ctx.step(booking.book, "train", undo=booking.unbook)
        raise ValueError("no")

    async with Worker(app):
        job = await trip.aenqueue()
        with pytest.raises(JobFailed, match="no"):
            await job.aresult(timeout="10s")
    assert booking.log == ["book train", "return ticket for train"]


async def test_a_parent_hears_of_a_child_that_was_undone_when_it_has_been(app: App, booking: Booking) -> None:
    @app.task(retry=ONCE)
    async def child(ctx: Context) -> None:
        await ctx.step(booking.book, "train", undo=booking.unbook)
        raise ValueError("no seat")

    @app.task
    async def parent(ctx: Context) -> tuple[str, str, int]:
        try:
            await ctx.spawn(child)
        except JobFailed as error:
            return error.type, error.message, len(booking.log)
        raise AssertionError

    async with Worker(app):
        assert await (await parent.aenqueue()).aresult(timeout="10s") == ("ValueError", "no seat", 2)


@pytest.mark.counts_runs
async def test_what_stands_after_the_last_step_is_not_run_to_undo(app: App, booking: Booking) -> None:
    reached: list[int] = []

    @app.task(retry=ONCE)
    async def trip(ctx: Context) -> None:
        await ctx.step(booking.book, "train", undo=booking.unbook)
        reached.append(1)
        raise ValueError("no")

    async with Worker(app):
        job = await trip.aenqueue()
        with pytest.raises(JobFailed, match="no"):
            await job.aresult(timeout="10s")
    assert booking.log == ["book train", "return ticket for train"]
    assert reached == [1]
