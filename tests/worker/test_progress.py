"""A running handler's progress is seen from outside, wherever it runs."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from process_tasks import register
from waiting import auntil

from stepwell import App, Context, Retry, Worker

ONCE = Retry(max_attempts=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["async", "thread", "process"])
async def test_progress_is_seen_from_outside(app: App, kind: str, tmp_path: Any) -> None:
    flag = str(tmp_path / "go-on")
    task = {
        "async": app.task(async_progress),
        "thread": app.task(thread_progress),
        "process": register(app)["progress"],
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
