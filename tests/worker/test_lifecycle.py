"""The worker itself: what it refuses, what it registers, how it dies."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Any

import psycopg
import pytest
from process_tasks import register
from waiting import Heard

from stepwell import App, ConfigError, DatabaseError, Retry, Worker
from stepwell.events import WorkerStopped

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
