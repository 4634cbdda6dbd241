"""The worker itself: what it refuses, what it registers, how it dies."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import threading
from typing import Any

import psycopg
import pytest
from process_tasks import register
from waiting import Heard

from stepwell import App, ConfigError, DatabaseError, Retry, Worker
from stepwell.telemetry.worker import WorkerStopped

ONCE = Retry(max_attempts=1)


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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"queues": "mail"}, "give a list"),
        ({"queues": []}, "empty"),
        ({"queues": [""]}, "queue"),
        ({"queues": 7}, "give a list of names"),
        ({"queues": ["a*b"]}, r"queue is 'a\*b': a \* may only be the last character"),
        ({"queues": ["**"]}, "may only be the last character"),
        ({"queues": {}}, "empty"),
        ({"queues": {"*.mail": 2}}, "may only be the last character"),
        ({"queues": {"mail": 0}}, r"queues\['mail'\] is 0"),
        ({"queues": {"mail": 2, "*": True}}, r"queues\['\*'\] is True"),
        ({"queues": {"mail": "2"}}, r"queues\['mail'\] is '2'"),
        ({"queues": {"mail": 2.0}}, r"queues\['mail'\] is 2\.0"),
        ({"queues": {"mail": 100_001}}, r"queues\['mail'\] is 100001"),
        ({"queues": {"mail": 2}, "concurrency": 2}, "concurrency is 2 and queues says"),
        ({"balance": "fair"}, "balance is 'fair': it must be 'round_robin', 'strict'"),
        ({"balance": None}, "balance is None"),
        ({"balance": ["a"]}, r"balance is \['a'\]"),
        ({"queues": ["a"], "balance": {"a": 0}}, r"balance\['a'\] is 0"),
        ({"queues": ["a"], "balance": {"a": -1}}, r"balance\['a'\] is -1"),
        ({"queues": ["a"], "balance": {"a": 1.5}}, r"balance\['a'\] is 1\.5"),
        ({"queues": ["a"], "balance": {"a": True}}, r"balance\['a'\] is True"),
        ({"queues": ["a"], "balance": {"a*a": 1}}, "may only be the last character"),
        ({"queues": ["a", "m.*"], "balance": {"a": 2, "b": 1, "n.*": 1}}, r"'b', 'n\.\*', from which .* a, m\.\*"),
        ({"lease": "5s", "renew": "5s"}, "three times"),
        ({"poll": 0}, "poll"),
        ({"grace": "soon"}, "grace"),
    ],
)
async def test_a_worker_with_senseless_options_is_refused(app: App, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Worker(app, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"queues": ["a", "a", "*"], "balance": {"b": 1, "*": 7, "m.*": 2}},
        {"queues": ["mail.eu"], "balance": {"mail.*": 2}},
        {"queues": {"mail": 2, "reports": 1, "*": 20}, "balance": {"mail": 3}},
        {"queues": ("a",), "balance": {}},
        {"queues": (name for name in "ab"), "balance": "strict", "concurrency": 100_000},
    ],
)
async def test_a_worker_with_sensible_options_is_not_refused(app: App, options: dict[str, Any]) -> None:
    Worker(app, **options)


async def test_a_worker_without_tasks_says_so(app: App) -> None:
    with pytest.raises(ConfigError, match="no tasks"):
        async with Worker(app):
            pass


async def test_a_worker_that_dies_takes_the_code_beside_it_down_and_says_why(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    @app.task
    async def nothing() -> None: ...

    async def beside() -> None:
        async with Worker(app, poll="50ms"):
            dropped = False
            while not dropped:
                # A call of the worker's may hold one table and want another.
                with contextlib.suppress(psycopg.errors.DeadlockDetected):
                    conn.execute("drop schema stepwell cascade")
                    dropped = True
            await asyncio.Event().wait()

    with pytest.raises(DatabaseError, match="stepwell migrate"):
        await beside()
    await asyncio.sleep(0)  # the cancellation was ours and is taken back


async def test_a_lease_that_fails_while_the_worker_ends_says_nothing_of_a_future(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def nothing() -> None: ...

    async with Worker(app) as worker:
        run = worker._current  # pyright: ignore[reportPrivateUsage]
        assert run is not None
    run._lease_failed(DatabaseError("too late"))  # pyright: ignore[reportPrivateUsage]
    del run
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


async def test_a_worker_can_be_run_again_and_not_twice_at_once(app: App) -> None:
    @app.task
    async def note() -> str:
        return "ran"

    worker = Worker(app)
    for _ in range(2):
        async with worker:
            assert await (await note.aenqueue()).aresult(timeout="10s") == "ran"
            with pytest.raises(ConfigError, match="runs already"):
                await worker.run()


@pytest.mark.parametrize("moment", [0, 0.001, 0.005, 0.02, 0.05])
async def test_a_start_that_is_cancelled_leaves_nothing_behind(
    app: App, conn: psycopg.Connection[Any], moment: float
) -> None:
    @app.task
    async def nothing() -> None: ...

    async def beside() -> None:
        async with Worker(app):
            await asyncio.Event().wait()

    running = asyncio.create_task(beside())
    await asyncio.wait([running], timeout=moment)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert conn.execute("select count(*) from stepwell.workers").fetchone() == (0,)
    assert not [thread for thread in threading.enumerate() if thread.name == "stepwell-lease"]


@pytest.mark.slow
async def test_stopping_right_after_the_start_never_hangs(app: App) -> None:
    @app.task
    async def nothing() -> None: ...

    async with asyncio.timeout(60):
        for _ in range(30):
            async with Worker(app):
                pass


async def test_a_task_for_processes_needs_its_extra_from_the_start(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    register(app)
    monkeypatch.setitem(sys.modules, "pebble", None)
    with pytest.raises(ConfigError, match=r"stepwell\[process\]"):
        await Worker(app).run()
