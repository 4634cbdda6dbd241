"""Absurd, by its Python SDK's asynchronous worker, with the schema that `absurdctl init` carries (it needs `psql`).

A worker claims as many tasks as it has slots and takes the next when all of them have ended, over one connection, as
the SDK does it. Its threads were slower. `poll_interval` is 0.01 and not the default of 0.25 seconds, for Absurd has no
wake-up by NOTIFY. uvloop is not in its documentation, but was faster. There is no call for many tasks: they are spawned
in one transaction, over a connection of the caller's. A step is `ctx.step` with a coroutine function, one after the
other, as its documentation has it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import uvloop
from absurd_sdk import Absurd, AsyncAbsurd
from program import DSN, aping_each, main, open_tally

_QUEUE = "default"
_TASK = os.environ.get("BENCH_TASK", "noop")


def install() -> None:
    """Make the schema and the queue."""
    absurdctl = Path(sys.executable).with_name("absurdctl")
    for command in (["init"], ["create-queue", _QUEUE]):
        subprocess.run([absurdctl, *command, "-d", DSN], check=True, stdout=subprocess.DEVNULL)


def fill(jobs: int) -> None:
    """Spawn no-ops in one transaction."""
    with psycopg.connect(DSN) as connection:
        app = Absurd(connection, queue_name=_QUEUE)
        for _ in range(jobs):
            app.spawn(_TASK, {}, queue=_QUEUE)


async def nothing() -> None:
    """A step that costs no more than being one."""


def work(concurrency: int) -> None:
    """Be a worker until SIGTERM."""
    tally = open_tally()
    app = AsyncAbsurd(DSN, queue_name=_QUEUE)

    @app.register_task("noop")
    async def noop(_params: Any, _ctx: Any) -> None:
        tally.hit()

    @app.register_task("five_steps")
    async def five_steps(_params: Any, ctx: Any) -> None:
        tally.hit()  # first: the clock runs from here
        for n in range(5):
            await ctx.step(f"step {n}", nothing)

    @app.register_task("answer")
    async def answer(params: Any, _ctx: Any) -> None:
        tally.hit_after(params["sent"])

    async def serve() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, app.stop_worker)
        await app.start_worker(concurrency=concurrency, poll_interval=0.01)
        await app.close()

    uvloop.run(serve())


def ping(jobs: int) -> None:
    """One task at a time."""

    async def each() -> None:
        app = AsyncAbsurd(DSN, queue_name=_QUEUE)
        await aping_each(jobs, lambda sent: app.spawn("answer", {"sent": sent}, queue=_QUEUE))
        await app.close()

    uvloop.run(each())


def left() -> int:
    """Tasks in no final state."""
    with psycopg.connect(DSN) as connection:
        row = connection.execute(
            "select count(*) from absurd.t_default where state in ('pending', 'running', 'sleeping')"
        ).fetchone()
        assert row is not None
        return int(row[0])


main(install=install, fill=fill, work=work, ping=ping, left=left)
