"""What an app has its workers call before the first claim and after the last handler."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import psycopg
import pytest
from waiting import Heard, auntil

from stepwell import App, ConfigError, StepwellError, SyncContext, Worker
from stepwell.telemetry.worker import HookFailed
from stepwell.worker import hooks as hooks_module

LOCALE: contextvars.ContextVar[str] = contextvars.ContextVar("LOCALE", default="none")


async def test_they_run_on_the_workers_loop_around_all_handlers(app: App) -> None:
    done: list[str] = []
    loop = asyncio.get_running_loop()

    @app.on_worker_start
    async def open_client() -> None:
        assert asyncio.get_running_loop() is loop
        await asyncio.sleep(0)
        LOCALE.set("tlh")
        done.append("open client")

    @app.on_worker_start
    def open_pool() -> None:
        assert threading.current_thread() is threading.main_thread()
        done.append("open pool")

    @app.on_worker_stop
    async def close_client() -> None:
        await asyncio.sleep(0)
        done.append("close client")

    @app.on_worker_stop
    def close_pool() -> None:
        done.append("close pool")

    began = asyncio.Event()

    @app.task
    async def work() -> None:
        began.set()
        await asyncio.sleep(0.05)
        done.append(f"work in {LOCALE.get()}")

    await work.aenqueue()
    around = ["open client", "open pool", "work in tlh", "close pool", "close client"]
    for times in (1, 2):  # each run has them
        async with Worker(app):
            await began.wait()
        assert done == around * times
        began.clear()
        await work.aenqueue()


async def test_nothing_is_claimed_or_registered_before_the_start_hooks_have_ended(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    go, waits = asyncio.Event(), asyncio.Event()

    @app.on_worker_start
    async def wait() -> None:
        waits.set()
        await go.wait()

    @app.task
    async def work() -> int:
        return 1

    job = await work.aenqueue()
    running = asyncio.create_task((worker := Worker(app)).run())
    await waits.wait()
    assert conn.execute("select count(*) from stepwell.workers").fetchone() == (0,)
    go.set()
    assert await job.aresult(timeout="20s") == 1
    worker.stop()
    await running


async def test_one_that_fails_ends_the_worker_and_closes_what_was_opened(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    done: list[str] = []

    @app.on_worker_start
    def one() -> None:
        done.append("one")

    @app.on_worker_start
    async def two() -> None:
        raise ConnectionError("nobody answers")

    @app.on_worker_start
    def three() -> None:
        done.append("three")

    for name in ("one", "two", "three"):
        app.on_worker_stop(lambda name=name: done.append(f"close {name}"))

    @app.task
    async def work() -> None: ...

    worker = Worker(app)
    heard = Heard(worker)
    said = r"the worker did not start: its on_worker_start hook .*two failed: ConnectionError: nobody answers"
    with pytest.raises(StepwellError, match=said):
        await worker.run()
    assert done == ["one", "close one"]
    [failed] = heard.of(HookFailed)
    assert failed.text().endswith("two failed: ConnectionError: nobody answers")
    assert "raise ConnectionError" in (failed.detail() or "")
    assert conn.execute("select count(*) from stepwell.workers").fetchone() == (0,)


async def test_each_stop_hook_is_called_whatever_became_of_the_others(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks_module, "STOP_PATIENCE", 0.05)
    done: list[str] = []

    @app.on_worker_stop
    def last() -> None:
        done.append("last")

    @app.on_worker_stop
    async def hangs() -> None:
        await asyncio.sleep(60)

    @app.on_worker_stop
    def fails() -> None:
        raise ValueError("cannot close")

    @app.on_worker_stop
    def says_nothing() -> None:
        raise ValueError

    @app.task
    async def work() -> None: ...

    worker = Worker(app)
    heard = Heard(worker)
    async with worker:
        pass
    assert done == ["last"]
    assert [(failed.hook.split(".")[-1], failed.error) for failed in heard.of(HookFailed)] == [
        ("says_nothing", "ValueError"),
        ("fails", "ValueError: cannot close"),
        ("hangs", "it has not ended within 0.05 s"),
    ]


async def test_stop_hooks_run_when_the_worker_is_cancelled_and_when_a_handler_is_abandoned(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.worker.draining._CANCEL_PATIENCE", 0.05)
    done: list[str] = []
    app.on_worker_stop(lambda: done.append("closed"))
    began, go = threading.Event(), threading.Event()

    @app.task
    def deaf(ctx: SyncContext) -> None:
        began.set()
        go.wait(20)

    await deaf.aenqueue()
    running = asyncio.create_task(Worker(app).run())
    await auntil(began.is_set)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert done == ["closed"]
    go.set()


async def test_a_start_hook_that_hangs_ends_when_the_worker_is_asked_to_stop(app: App) -> None:
    done: list[str] = []
    hanging = asyncio.Event()

    @app.on_worker_start
    def first() -> None:
        done.append("opened")

    @app.on_worker_start
    async def hangs() -> None:
        hanging.set()
        await asyncio.sleep(60)

    app.on_worker_stop(lambda: done.append("closed"))
    app.on_worker_stop(lambda: done.append("never"))

    @app.task
    async def work() -> None: ...

    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    await hanging.wait()
    worker.stop()
    await running
    assert done == ["opened", "closed"]


@pytest.mark.parametrize("turns", range(5))
async def test_a_stop_in_the_turn_in_which_the_last_start_hook_returns_cuts_no_stop_hook_short(
    app: App, turns: int
) -> None:
    done: list[str] = []
    worker = Worker(app)

    @app.on_worker_start
    async def asks() -> None:
        worker.stop()
        try:
            for _ in range(turns):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass  # a hook may finish what it has begun

    @app.on_worker_stop
    async def close() -> None:
        await asyncio.sleep(0.01)
        done.append("closed")

    @app.task
    async def work() -> None: ...

    running = asyncio.create_task(worker.run())
    await running
    assert (done, running.cancelling()) == (["closed"], 0)


async def test_a_cancel_from_outside_is_not_taken_for_the_stop_that_comes_with_it(app: App) -> None:
    hanging = asyncio.Event()

    @app.on_worker_start
    async def hangs() -> None:
        hanging.set()
        await asyncio.sleep(60)

    @app.task
    async def work() -> None: ...

    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    await hanging.wait()
    worker.stop()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_what_is_no_hook_is_refused(app: App) -> None:
    @app.task
    async def work() -> None: ...

    def takes_one(client: object) -> None: ...
    def gives() -> Any:
        yield 1

    wrong: list[tuple[Any, str]] = [
        (work, "'work' is a task"),
        (takes_one, "takes arguments: it is called without any"),
        (gives, "is a generator: open in a start hook, and close in a stop hook"),
        (7, "takes a function without arguments, not 7"),
        (App, "takes a function without arguments"),
    ]
    for hook, said in wrong:
        for register in (app.on_worker_start, app.on_worker_stop):
            with pytest.raises(ConfigError) as raised:
                register(hook)
            assert said in str(raised.value)
