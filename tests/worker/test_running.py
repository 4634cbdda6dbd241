"""What goes in is run, in order and within limits, and tells of itself."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import psycopg
import pytest
from waiting import auntil

from stepwell import App, Context, JobNotFound, Retry, Worker
from stepwell.values.job import ClaimedJob

ONCE = Retry(max_attempts=1)


async def test_a_job_is_run_and_its_result_read(app: App) -> None:
    @app.task
    async def add(x: int, y: int) -> int:
        return x + y

    async with Worker(app):
        job = await add.aenqueue(2, y=3)
        assert await job.aresult(timeout="10s") == 5
        info = await job.ainfo()
    assert info is not None
    assert (info.state, info.attempt, info.epoch, info.result, info.args) == ("succeeded", 1, 1, 5, {"x": 2, "y": 3})
    assert info.enqueued_at <= (info.claimed_at or info.enqueued_at) <= (info.finished_at or info.enqueued_at)


async def test_a_plain_function_runs_in_a_thread(app: App) -> None:
    @app.task
    def where() -> int:
        return threading.get_ident()

    async with Worker(app):
        assert await (await where.aenqueue()).aresult(timeout="10s") != threading.get_ident()


class Colour(Enum):
    RED = "red"


@dataclass
class Order:
    id: UUID
    at: datetime
    colour: Colour
    lines: list[tuple[str, int]]


async def test_args_and_results_keep_their_types(app: App) -> None:
    @app.task
    async def same(order: Order, note: bytes | None = None) -> Order:
        assert isinstance(order, Order)
        return order

    order = Order(UUID(int=7), datetime(2026, 1, 2, tzinfo=UTC), Colour.RED, [("a", 1)])
    async with Worker(app):
        assert await (await same.aenqueue(order)).aresult(timeout="10s") == order


async def test_pydantic_models_work(app: App) -> None:
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        born: datetime

    async def older(person: Person) -> Person:
        return person.model_copy(update={"name": person.name.upper()})

    older.__annotations__ = {"person": Person, "return": Person}
    task = app.task(older)
    async with Worker(app):
        job = await task.aenqueue(Person(name="ada", born=datetime(1815, 12, 10, tzinfo=UTC)))
        assert (await job.aresult(timeout="10s")).name == "ADA"


async def test_a_higher_priority_goes_first_then_the_earlier(app: App) -> None:
    ran: list[int] = []

    @app.task
    async def note(n: int) -> None:
        ran.append(n)

    earlier = datetime.now(UTC) - timedelta(hours=1)
    await note.aenqueue_many(
        [
            note.call(3),
            note.call(4),
            note.using(priority=-5).call(5),
            note.using(priority=7).call(1),
            note.using(run_at=earlier).call(2),
        ]
    )
    async with Worker(app, concurrency=1):
        await auntil(lambda: len(ran) == 5)
    assert ran == [1, 2, 3, 4, 5]


async def test_a_delayed_job_waits_for_its_time_and_not_for_a_poll(app: App) -> None:
    @app.task
    async def when() -> float:
        return time.time()

    async with Worker(app, poll="10m"):
        before = time.time()
        job = await when.using(delay="300ms").aenqueue()
        ran = await job.aresult(timeout="60s")
    assert ran - before >= 0.3


async def test_concurrency_is_a_limit(app: App) -> None:
    running = most = 0

    @app.task
    async def busy() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    jobs = await busy.aenqueue_many([dict[str, int]()] * 40)
    async with Worker(app, concurrency=7):
        await asyncio.gather(*[job.aresult(timeout="20s") for job in jobs])
    assert most == 7


async def test_only_the_named_queues_and_known_tasks_are_claimed(
    app: App, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    @app.task
    async def mine() -> str:
        return "ran"

    other = await mine.using(queue="other").aenqueue()
    conn.execute("select stepwell.enqueue('nobody-knows-me')")
    async with Worker(app, queues=["default"]):
        assert await (await mine.aenqueue()).aresult(timeout="10s") == "ran"
    info = await other.ainfo()
    assert info is not None
    assert (info.state, info.attempt) == ("ready", 0)
    assert conn.execute("select state::text, epoch from stepwell.jobs where task = 'nobody-knows-me'").fetchone() == (
        "ready",
        0,
    )


async def test_a_paused_queue_is_left_alone_until_resumed(app: App) -> None:
    @app.task
    async def hello() -> str:
        return "hello"

    await app.apause("default")
    job = await hello.aenqueue()
    async with Worker(app):
        with pytest.raises(TimeoutError, match="the queue 'default' is paused; resume it: stepwell resume default"):
            await job.aresult(timeout="200ms")
        await app.aresume("default")
        assert await job.aresult(timeout="10s") == "hello"


async def test_context_tells_of_the_job(app: App) -> None:
    @app.task(timeout="30s", queue="mail")
    async def about(ctx: Context, n: int) -> dict[str, Any]:
        ctx.logger.debug("here")
        remaining = (ctx.deadline or datetime.now(UTC)) - datetime.now(UTC)
        return {
            "id": ctx.id,
            "attempt": ctx.attempt,
            "queue": ctx.queue,
            "metadata": ctx.metadata,
            "cancelled": ctx.cancelled,
            "remaining": remaining.total_seconds(),
        }

    async with Worker(app):
        job = await about.using(metadata={"tenant": "a"}).aenqueue(1)
        said = await job.aresult(timeout="10s")
    assert said.pop("remaining") == pytest.approx(30, abs=5)
    assert said == {"id": str(job.id), "attempt": 1, "queue": "mail", "metadata": {"tenant": "a"}, "cancelled": False}


async def test_keep_decides_what_stays_in_history(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task(keep=0)
    async def forgotten() -> None: ...

    @app.task(keep="forever")
    async def kept() -> None: ...

    async with Worker(app):
        gone = await forgotten.aenqueue()
        stays = await kept.aenqueue()
        await stays.aresult(timeout="10s")

        async def is_gone() -> bool:
            return await gone.ainfo() is None

        await auntil(is_gone)
        with pytest.raises(JobNotFound, match="no longer kept"):
            await gone.aresult(timeout="10s")
    assert conn.execute("select expires_at::text from stepwell.history_forever").fetchall() == [("infinity",)]


@pytest.mark.slow
async def test_two_workers_in_one_process_share_the_work(app: App) -> None:
    both = asyncio.Barrier(4)

    @app.task
    async def meet() -> None:
        await both.wait()  # passed only by four at once, of which one worker runs two

    jobs = await meet.aenqueue_many([dict[str, int]()] * 40)
    async with Worker(app, concurrency=2), Worker(app, concurrency=2):
        await asyncio.gather(*[job.aresult(timeout="20s") for job in jobs])
    for job in jobs:
        info = await job.ainfo()
        assert info is not None
        assert (info.attempt, info.failures) == (1, ())


async def test_jobs_that_start_in_the_next_turn_leave_the_other_slots_free(app: App) -> None:
    release = asyncio.Event()

    @app.task
    async def hold() -> None:
        await release.wait()

    async with Worker(app, concurrency=100) as worker:
        run = worker._current  # pyright: ignore[reportPrivateUsage]
        assert run is not None
        ids = [str(UUID(int=n)) for n in range(60)]
        run.slots.runners[0].take([ClaimedJob(known, "default", "hold", "{}", None, 1, 1, 0, 0) for known in ids])
        assert run.slots.runners[0].unstarted  # more than one turn starts
        assert run.slots.fetchers[0]._wanted() == 40  # pyright: ignore[reportPrivateUsage]
        await auntil(lambda: len(run.slots.runners[0].running) == 60)
        assert run.slots.fetchers[0]._wanted() == 40  # pyright: ignore[reportPrivateUsage]
        release.set()
        await run.slots.runners[0].idle()
