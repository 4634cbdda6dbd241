"""Notifications are a hint: where they do not arrive the worker notices, says so, and still does everything in time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deaf import deaf
from waiting import Heard

from stepwell import App, JobCancelled, Worker
from stepwell.telemetry.worker import ListenerDeaf


@pytest.mark.slow
async def test_a_deaf_worker_says_so_and_polls(dsn: str, open_dir: Path) -> None:
    with deaf(dsn, open_dir) as url:
        async with App(url) as app:
            started = asyncio.Event()

            @app.task
            async def when() -> float:
                return time.monotonic()

            @app.task
            async def endless() -> None:
                started.set()
                await asyncio.Event().wait()

            worker = Worker(app, poll="30s")
            heard = Heard(worker)
            async with worker:
                await heard.wait_for(ListenerDeaf)
                began = time.monotonic()
                assert await (await when.aenqueue()).aresult(timeout="10s") - began < 1.5
                job = await endless.aenqueue()
                await started.wait()
                asked = time.monotonic()
                await job.acancel()
                try:
                    await job.aresult(timeout="10s")
                except JobCancelled:
                    assert time.monotonic() - asked < 4
                else:
                    raise AssertionError("it must be cancelled")


async def test_payloads_that_are_not_ours_are_ignored(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def note() -> str:
        return "ran"

    async with Worker(app) as worker:
        for channel in ("stepwell_ready", "stepwell_due", "stepwell_cancel", "stepwell_done"):
            for payload in ("", "-1", "1e9", "9" * 50, "'; drop schema stepwell; --", "\u0661\u0662", "x" * 7000):
                conn.execute("select pg_notify(%s, %s)", (channel, payload))
        assert await (await note.aenqueue()).aresult(timeout="10s") == "ran"
        assert worker.id is not None
