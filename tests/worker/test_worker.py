"""The worker end to end: what goes in is run, in order, within limits, and ends as it should."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import psycopg
import pytest
from waiting import Heard, auntil

from stepwell import App, ConfigError, Context, DatabaseError, JobCancelled, JobFailed, JobNotFound, Retry, Worker
from stepwell.events import HandlerAbandoned, LoopBlocked, WorkerStopped

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
        await auntil(lambda: _true(len(ran) == 5))
    assert ran == [1, 2, 3, 4, 5]


async def test_a_delayed_job_waits_for_its_time_and_not_for_a_poll(app: App) -> None:
    @app.task
    async def when() -> float:
        return time.time()

    async with Worker(app, poll="60s") as worker:
        await worker.started()
        before = time.time()
        job = await when.using(delay="300ms").aenqueue()
        ran = await job.aresult(timeout="10s")
    assert 0.3 <= ran - before < 1.0


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
        with pytest.raises(TimeoutError, match="does a worker run that task and queue"):
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


@pytest.mark.parametrize("kind", ["async", "thread", "process"])
async def test_progress_is_seen_from_outside(app: App, kind: str, tmp_path: Any) -> None:
    flag = str(tmp_path / "go-on")
    task = {
        "async": app.task(async_progress),
        "thread": app.task(thread_progress),
        "process": _processes(app)["progress"],
    }[kind]
    async with Worker(app):
        job = await task.aenqueue(flag)

        async def progress() -> Any:
            info = await job.ainfo()
            return info and info.progress

        assert await auntil(progress) == {"done": 1.0, "total": 3.0, "message": "one"}
        with open(flag, "w"):  # noqa: ASYNC230, PTH123
            pass
        await job.aresult(timeout="10s")


async def async_progress(ctx: Context, flag: str) -> None:
    ctx.progress(1, 3, "one")
    while not os.path.exists(flag):  # noqa: ASYNC110, ASYNC240, PTH110
        await asyncio.sleep(0.01)


def thread_progress(ctx: Context, flag: str) -> None:
    ctx.progress(1, 3, "one")
    while not os.path.exists(flag):  # noqa: PTH110
        ctx.wait_cancelled(0.01)


def _processes(app: App) -> dict[str, Any]:
    import process_tasks

    return process_tasks.register(app)


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


async def test_a_failed_job_is_retried_under_the_same_id_with_fresh_attempts(app: App) -> None:
    broken = True

    @app.task(retry=Retry(max_attempts=2, initial=0))
    async def mended() -> str:
        if broken:
            raise ValueError("broken")
        return "mended"

    async with Worker(app):
        job = await mended.aenqueue()
        with pytest.raises(JobFailed, match="broken"):
            await job.aresult(timeout="10s")
        broken = False
        assert await job.aretry()
        assert await job.aresult(timeout="10s") == "mended"
        info = await job.ainfo()
    assert info is not None
    assert (info.attempt, info.epoch, len(info.failures)) == (1, 3, 2)
    assert not await job.aretry()


async def test_a_job_that_waits_for_its_next_try_can_be_hurried(app: App) -> None:
    @app.task(retry=Retry(initial="1h"))
    async def second_time(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ValueError("once")
        return ctx.attempt

    async with Worker(app):
        job = await second_time.aenqueue()

        async def waits() -> bool:
            info = await job.ainfo()
            return info is not None and info.state == "scheduled" and info.attempt == 1

        await auntil(waits)
        assert await job.aretry()
        assert await job.aresult(timeout="10s") == 2


async def test_failure_carries_the_remote_type_message_and_traceback(app: App) -> None:
    @app.task(retry=ONCE)
    async def explode() -> None:
        raise LookupError("no such thing")

    async with Worker(app):
        with pytest.raises(JobFailed) as caught:
            await (await explode.aenqueue()).aresult(timeout="10s")
    assert (caught.value.type, caught.value.message, caught.value.task) == ("LookupError", "no such thing", "explode")
    assert "in explode" in (caught.value.traceback or "")
    assert "executor.py" not in (caught.value.traceback or "")


async def test_retry_on_and_never_on_decide_by_type(app: App) -> None:
    @app.task(retry=Retry(max_attempts=3, initial=0, retry_on=(OSError,), never_on=(FileNotFoundError,)))
    async def pick(kind: str) -> None:
        raise {"os": OSError, "missing": FileNotFoundError, "value": ValueError}[kind]("no")

    async with Worker(app):
        for kind, attempts in (("os", 3), ("missing", 1), ("value", 1)):
            job = await pick.aenqueue(kind)
            with pytest.raises(JobFailed):
                await job.aresult(timeout="10s")
            info = await job.ainfo()
            assert info is not None
            assert info.attempt == attempts, kind


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
        let_go.set()


async def test_a_thread_that_looks_at_cancelled_ends_at_its_timeout(app: App) -> None:
    @app.task(timeout="50ms", retry=ONCE)
    def looks(ctx: Context) -> None:
        ctx.wait_cancelled()
        raise RuntimeError("asked to stop")

    async with Worker(app):
        with pytest.raises(JobFailed, match="longer than its timeout"):
            await (await looks.aenqueue()).aresult(timeout="10s")


async def test_a_process_is_killed_at_its_timeout(app: App) -> None:
    sleep = _processes(app)["sleep"]
    async with Worker(app):
        began = time.monotonic()
        with pytest.raises(JobFailed, match="longer than its timeout"):
            await (await sleep.aenqueue(60)).aresult(timeout="30s")
        assert time.monotonic() - began < 20


async def test_processes_return_values_and_failures(app: App) -> None:
    tasks = _processes(app)
    async with Worker(app):
        pid, squared = await (await tasks["square"].aenqueue(7)).aresult(timeout="30s")
        assert squared == 49
        assert pid != os.getpid()
        with pytest.raises(JobFailed, match="ZeroDivisionError"):
            await (await tasks["divide"].aenqueue(0)).aresult(timeout="30s")
        with pytest.raises(JobFailed, match="ProcessExpired"):
            await (await tasks["die"].aenqueue()).aresult(timeout="30s")
        assert (await (await tasks["square"].aenqueue(3)).aresult(timeout="30s"))[1] == 9


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
    assert await job.aresult(timeout="1s") == "done"


async def test_shutdown_hands_back_what_does_not_end_in_time_and_burns_no_attempt(app: App) -> None:
    runs: list[int] = []

    @app.task
    async def endless(ctx: Context) -> None:
        runs.append(ctx.attempt)
        await asyncio.Event().wait()

    jobs = await endless.aenqueue_many([dict[str, int]()] * 3)
    worker = Worker(app, grace="100ms")
    async with worker:
        await auntil(lambda: _true(len(runs) == 3))
    for job in jobs:
        info = await job.ainfo()
        assert info is not None
        assert (info.state, info.attempt, info.epoch, len(info.failures)) == ("ready", 0, 1, 0)


async def test_a_blocked_loop_is_reported_with_the_culprit_and_keeps_its_lease(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    @app.task(retry=ONCE)
    async def blocks() -> str:
        time.sleep(2.5)  # noqa: ASYNC251
        return "at last"

    worker = Worker(app, lease="1.5s", renew="300ms", blocked_after="300ms")
    heard = Heard(worker)
    async with worker:
        job = await blocks.aenqueue()
        assert await job.aresult(timeout="20s") == "at last"
    blocked = heard.of(LoopBlocked)[0]
    assert (blocked.task, blocked.job_id) == ("blocks", str(job.id))
    assert "time.sleep(2.5)" in blocked.stack
    info = await job.ainfo()
    assert info is not None
    assert (info.epoch, len(info.failures)) == (1, 0)


async def test_handlers_may_raise_anything_without_hurting_the_worker(app: App) -> None:
    class Rude(BaseException):
        pass

    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    @app.task(retry=ONCE)
    async def on_loop(kind: str) -> None:
        raise {
            "exit": SystemExit(3),
            "interrupt": KeyboardInterrupt(),
            "base": Rude("rude"),
            "cancelled": asyncio.CancelledError(),
            "nul": ValueError("a\x00b\ud800"),
            "unspeakable": Unspeakable(),
            "huge": ValueError("x" * 1_000_000),
        }[kind]

    @app.task(retry=ONCE)
    def in_thread(kind: str) -> None:
        raise {"exit": SystemExit(3), "base": Rude("rude"), "nul": ValueError("a\x00b\ud800")}[kind]

    async with Worker(app) as worker:
        for kind in ("exit", "interrupt", "base", "cancelled", "nul", "unspeakable", "huge"):
            with pytest.raises(JobFailed):
                await (await on_loop.aenqueue(kind)).aresult(timeout="10s")
        for kind in ("exit", "base", "nul"):
            with pytest.raises(JobFailed):
                await (await in_thread.aenqueue(kind)).aresult(timeout="10s")
        assert worker.id is not None


async def test_a_result_that_does_not_encode_fails_the_job_and_names_the_type(app: App) -> None:
    class Odd:
        pass

    @app.task
    async def odd() -> Any:
        return Odd()

    @app.task
    def generator() -> Any:
        return (n for n in range(3))

    @app.task
    async def nul() -> str:
        return "\x00"

    @app.task
    async def huge() -> str:
        return "x" * (1024 * 1024)

    async with Worker(app):
        for task, said in ((odd, "Odd"), (generator, "generator"), (nul, "NUL"), (huge, "max_result_size")):
            job = await task.aenqueue()
            with pytest.raises(JobFailed, match=said):
                await job.aresult(timeout="10s")
            info = await job.ainfo()
            assert info is not None
            assert (info.attempt, info.failures[0].reason) == (1, "bad_result")


async def test_args_that_no_longer_decode_fail_at_once_and_can_be_retried(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    @app.task
    async def typed(n: int) -> int:
        return n

    async with Worker(app):
        for args in ('{"n": "text"}', '{"m": 1}', "{}", '{"n": 1, "extra": 2}'):
            row = conn.execute("select stepwell.enqueue('typed', %s::json)", (args,)).fetchone()
            assert row is not None
            job = app.job(row[0])
            with pytest.raises(JobFailed, match="do not fit"):
                await job.aresult(timeout="10s")
            info = await job.ainfo()
            assert info is not None
            assert (info.state, info.attempt, info.failures[0].reason) == ("failed", 1, "bad_args")
            assert await job.aretry()


async def test_bad_args_of_a_job_enqueued_by_the_handler_are_the_handlers_own_error(app: App) -> None:
    @app.task
    async def inner(n: int) -> None: ...

    @app.task(retry=Retry(max_attempts=2, initial=0))
    async def outer() -> None:
        await inner.aenqueue("text")  # pyright: ignore[reportArgumentType]

    async with Worker(app):
        job = await outer.aenqueue()
        with pytest.raises(JobFailed, match="BadArgs"):
            await job.aresult(timeout="10s")
        info = await job.ainfo()
    assert info is not None
    assert (info.attempt, info.failures[0].reason) == (2, "error")


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
        with pytest.raises(JobNotFound, match="not kept"):
            await gone.aresult(timeout="10s")
    assert conn.execute("select expires_at::text from stepwell.history_forever").fetchall() == [("infinity",)]


async def test_a_worker_leaves_the_registry_when_it_stops(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def nothing() -> None: ...

    worker = Worker(app)
    heard = Heard(worker)
    async with worker:
        rows = conn.execute("select pid, queues, tasks, concurrency, alive from stepwell.workers").fetchall()
        assert rows == [(os.getpid(), ["default"], ["nothing"], 10, True)]
    assert conn.execute("select count(*) from stepwell.workers").fetchone() == (0,)
    assert heard.of(WorkerStopped)


async def test_two_workers_in_one_process_share_the_work(app: App) -> None:
    @app.task
    async def nothing() -> None:
        await asyncio.sleep(0.001)

    jobs = await nothing.aenqueue_many([dict[str, int]()] * 200)
    async with Worker(app), Worker(app):
        await asyncio.gather(*[job.aresult(timeout="20s") for job in jobs])
    for job in jobs:
        info = await job.ainfo()
        assert info is not None
        assert info.epoch == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"queues": "mail"}, "give a list"),
        ({"queues": []}, "empty"),
        ({"queues": [""]}, "queue"),
        ({"lease": "5s", "renew": "5s"}, "three times"),
        ({"poll": 0}, "poll"),
        ({"grace": "soon"}, "grace"),
    ],
)
async def test_a_worker_with_senseless_options_is_refused(app: App, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Worker(app, **options)


async def test_a_worker_without_tasks_says_so(app: App) -> None:
    with pytest.raises(ConfigError, match="no tasks"):
        async with Worker(app):
            pass


async def _true(value: bool) -> bool:
    return value


async def test_a_worker_that_dies_takes_the_code_beside_it_down_and_says_why(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    @app.task
    async def nothing() -> None: ...

    async def beside() -> None:
        async with Worker(app, poll="50ms"):
            conn.execute("drop schema stepwell cascade")
            await asyncio.Event().wait()

    with pytest.raises(DatabaseError, match="stepwell migrate"):
        await beside()
    await asyncio.sleep(0)  # the cancellation was ours and is taken back
