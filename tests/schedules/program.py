"""The app and the worker of a simulated day. Run as a program, it is told by the variable TOLD what to do.

It says each event of its worker as a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from stepwell import App, Context, Retry, Task, Worker
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.jobs import JobStarted, JobSucceeded

QUEUES = ("main", "rest", "held")


def make_app(dsn: str, gate: Path) -> App:
    """Two tasks: one ends at once, the other when the gate is open, which is when that file does not exist."""
    # Whoever runs a job may die, as often as a day is long.
    app = App(dsn, name="day", pool_size=3, retry=Retry(max_attempts=1000))

    @app.task
    async def work(ctx: Context, name: str) -> tuple[str, str]:
        return name, _tick(ctx)

    @app.task
    async def hold(ctx: Context, name: str) -> tuple[str, str]:
        while gate.exists():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.05)
        return name, _tick(ctx)

    return app


def _tick(ctx: Context) -> str:
    assert ctx.scheduled_for is not None
    return ctx.scheduled_for.isoformat()


def task_for(app: App, queue: str) -> Task[..., Any]:
    return app.tasks["hold" if queue == "held" else "work"]


def options(rule: Mapping[str, Any]) -> dict[str, Any]:
    """The rule as the app wants it."""
    return {**rule, "args": {"name": rule["name"]}}


def _say(event: Telemetry) -> None:
    if not isinstance(event, JobStarted | JobSucceeded):
        sys.stdout.write(json.dumps({"event": type(event).__name__, **asdict(event)}) + "\n")
        sys.stdout.flush()


async def _main(told: Mapping[str, Any]) -> None:
    app = make_app(told["dsn"], Path(told["gate"]))
    for rule in told["declared"]:
        app.schedule(**options(rule))(task_for(app, rule["queue"]))
    # By the test's clock hours pass in a moment: a lease must outlast them all. Who dies is missed by his lock.
    worker = Worker(app, queues=QUEUES, concurrency=200, lease="3d", renew="5s")
    worker.subscribe(_say)
    async with app:
        await worker.run()


if __name__ == "__main__":
    # What the worker has to say it says by events.
    logging.disable()
    asyncio.run(_main(json.loads(os.environ["TOLD"])))
