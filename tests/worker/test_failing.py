"""What becomes of a handler that fails, and of one that misbehaves."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, cast

import psycopg
import pytest
from waiting import Heard, auntil

from stepwell import App, Context, Done, JobFailed, Machine, Retry, Worker
from stepwell.telemetry.jobs import AttemptFailed
from stepwell.telemetry.worker import LoopBlocked

ONCE = Retry(max_attempts=1)


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


async def test_a_traceback_begins_with_the_function_that_was_called(app: App) -> None:
    async def explode() -> None:
        raise LookupError("no such thing")

    def explode_in_a_thread() -> None:
        raise LookupError("no such thing")

    @app.machine("machine", retry=ONCE).state(start=True)
    @dataclass
    class Explodes:
        def run(self) -> Done[None]:
            raise LookupError("no such thing")

    machine = cast("Machine", app.tasks["machine"])
    tasks = [app.task(retry=ONCE)(fn) for fn in (explode, explode_in_a_thread)]
    chains = [app.chain(f"chain of {fn.__name__}", fn, retry=ONCE) for fn in (explode, explode_in_a_thread)]
    async with Worker(app):
        for call in [*(task.call() for task in (*tasks, *chains)), machine.call(Explodes())]:
            [job] = await app.aenqueue_many([call])
            with pytest.raises(JobFailed) as caught:
                await job.aresult(timeout="10s")
            frames = [line for line in (caught.value.traceback or "").splitlines() if "File" in line]
            assert [__file__ in frame for frame in frames] == [True], caught.value.traceback


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


@pytest.mark.slow
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
    # Only the frames that the worker has called, not those that have called the worker.
    assert "time.sleep(2.5)" in blocked.stack
    assert (blocked.stack.count("File "), "stepwell/worker" in blocked.stack) == (1, False)
    info = await job.ainfo()
    assert info is not None
    assert (info.epoch, len(info.failures)) == (1, 0)


@pytest.mark.slow
async def test_jobs_that_block_the_loop_a_little_too_long_do_not_end_the_worker(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The thread looks so often that the loop answers while it reports, as it may do at any pace.
    monkeypatch.setattr("stepwell.worker.lease._TICK", 0.0005)

    @app.task(retry=ONCE)
    async def blocks(length: float) -> None:
        time.sleep(length)  # noqa: ASYNC251

    worker = Worker(app, concurrency=1, blocked_after="5ms")
    heard = Heard(worker)
    async with worker:
        jobs = await blocks.aenqueue_many([{"length": 0.0051 + 0.00002 * n} for n in range(120)])
        for job in jobs:
            await job.aresult(timeout="20s")
    assert heard.of(LoopBlocked)


async def test_handlers_may_raise_anything_without_hurting_the_worker(app: App) -> None:
    class Rude(BaseException):
        pass

    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    @dataclass(frozen=True)
    class Frozen(Exception):
        why: str

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
            "frozen": Frozen("so"),
        }[kind]

    @app.task(retry=ONCE)
    def in_thread(kind: str) -> None:
        raise {"exit": SystemExit(3), "base": Rude("rude"), "nul": ValueError("a\x00b\ud800")}[kind]

    async with Worker(app) as worker:
        for kind in ("exit", "interrupt", "base", "cancelled", "nul", "unspeakable", "huge", "frozen"):
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
        for args in ('{"n": "text"}', '{"n": [1]}', '{"n": null}'):
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


async def test_the_log_counts_attempts_against_the_limit_of_the_job(app: App) -> None:
    @app.task(retry=Retry(max_attempts=2, initial=0))
    async def fails() -> None:
        raise ValueError("broken")

    async with Worker(app) as worker:
        heard = Heard(worker)
        for most in (3, 1):
            with pytest.raises(JobFailed, match="broken"):
                await (await fails.using(max_attempts=most).aenqueue()).aresult("10s")
    said = [event.text().partition("\n")[0] for event in heard.of(AttemptFailed)]
    # The line at which the task above raises it.
    place = f"{__file__}:{fails.fn.__code__.co_firstlineno + 2}"
    ends = [text.partition(" attempt ")[2] for text in said]
    assert ends == [
        f"1 of 3 failed (error): ValueError: broken at {place}; next try in 0s",
        f"2 of 3 failed (error): ValueError: broken at {place}; next try in 0s",
        "3 of 3 failed (error): ValueError: broken; it is not tried again",
        "1 of 1 failed (error): ValueError: broken; it is not tried again",
    ]


async def test_the_log_names_the_step_or_state_that_failed(app: App) -> None:
    async def breaks(x: int) -> int:
        raise ValueError("broken")

    async def starts(x: int) -> int:
        return x

    chain = app.chain("two", starts, breaks, retry=ONCE)
    machine = app.machine("order", retry=ONCE)

    @machine.state(start=True)
    @dataclass
    class Begun:
        async def run(self) -> int:
            return await breaks(1)

    @app.task(retry=ONCE)
    async def durable(ctx: Context) -> None:
        await ctx.step(breaks, 1)

    async with Worker(app) as worker:
        heard = Heard(worker)
        for job in (await chain.aenqueue(1), await machine.aenqueue(Begun()), await durable.aenqueue()):
            with pytest.raises(JobFailed, match="broken"):
                await job.aresult("10s")
    said = {event.task: event.text().partition(" attempt ")[2] for event in heard.of(AttemptFailed)}
    assert said == {
        task: f"1 of 1 failed in {step!r} (error): ValueError: broken; it is not tried again"
        for task, step in (("two", "breaks"), ("order", "Begun"), ("durable", "breaks"))
    }
