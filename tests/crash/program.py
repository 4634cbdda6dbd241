"""The worker that the tests kill: `program.py`, told by the variable TOLD what to do.

Says each event of its worker as a line of JSON. The first SIGTERM stops it, the second does not wait.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ledger import Ledger, Stopped
from msgspec.structs import asdict

from stepwell import App, Context, Retry, Worker
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.jobs import JobStarted, JobSucceeded

told: dict[str, Any] = json.loads(os.environ["TOLD"])
app = App(told["dsn"], pool_size=3, retry=Retry(initial="50ms", cap="1s"))
ledger = Ledger(told["ledger_dsn"])

_EFFECT = "insert into crash.effect (job_id, epoch) values (%s, %s)"
# Longer than any test waits.
_FOR_EVER = 600


@app.task
async def quick(ctx: Context, ms: int = 0) -> int:
    async with ledger.arun(ctx):
        await asyncio.sleep(ms / 1000)
    return ctx.epoch


@app.task
def plain(ctx: Context, ms: int = 0) -> int:
    with ledger.run(ctx):
        time.sleep(ms / 1000)
    return ctx.epoch


@app.task(transaction=True)
async def paid(ctx: Context, ms: int = 0) -> int:
    async with ledger.arun(ctx):
        await ctx.connection.execute(_EFFECT, (ctx.id, ctx.epoch))
        await asyncio.sleep(ms / 1000)
    return ctx.epoch


@app.task(transaction=True)
def paid_plain(ctx: Context, ms: int = 0) -> int:
    with ledger.run(ctx):
        ctx.sync_connection.execute(_EFFECT, (ctx.id, ctx.epoch))
        time.sleep(ms / 1000)
    return ctx.epoch


@app.task
async def held(ctx: Context, until: int, ballast: str = "") -> int:
    """Ends only in the run with this epoch, or a later one."""
    async with ledger.arun(ctx):
        if ctx.epoch < until:
            await asyncio.sleep(_FOR_EVER)
    return ctx.epoch


@app.task
async def blocking(ctx: Context, gate: str) -> int:
    """Lets nothing else happen on the event loop until there is a file of this name."""
    async with ledger.arun(ctx):
        wait_for(Path(gate))
    return ctx.epoch


def wait_for(gate: Path) -> None:
    while not gate.exists():
        time.sleep(0.02)


@app.task
def held_plain(ctx: Context, until: int) -> int:
    with ledger.run(ctx):
        if ctx.epoch < until and ctx.wait_cancelled(_FOR_EVER):
            raise Stopped
    return ctx.epoch


@app.task(transaction=True)
async def held_paid(ctx: Context, until: int) -> int:
    async with ledger.arun(ctx):
        await ctx.connection.execute(_EFFECT, (ctx.id, ctx.epoch))
        if ctx.epoch < until:
            await ctx.connection.execute("select pg_sleep(%s)", (_FOR_EVER,))
    return ctx.epoch


@app.task(transaction=True)
def held_paid_plain(ctx: Context, until: int) -> int:
    with ledger.run(ctx):
        ctx.sync_connection.execute(_EFFECT, (ctx.id, ctx.epoch))
        if ctx.epoch < until:
            ctx.sync_connection.execute("select pg_sleep(%s)", (_FOR_EVER,))
    return ctx.epoch


@app.task(process=True)
def held_process(ctx: Context, until: int) -> int:
    with ledger.run(ctx):
        if ctx.epoch < until:
            time.sleep(_FOR_EVER)
    return ctx.epoch


@app.task(retry=Retry(max_attempts=3))
async def poison(ctx: Context) -> int:
    async with ledger.arun(ctx):
        os.kill(os.getpid(), signal.SIGKILL)
    return ctx.epoch


@app.task
async def sour(ctx: Context, until: int) -> int:
    """Raises in every run before the one with this epoch."""
    async with ledger.arun(ctx):
        if ctx.epoch < until:
            raise ValueError("not yet")
    return ctx.epoch


def say(event: Telemetry) -> None:
    if not isinstance(event, JobStarted | JobSucceeded):
        said = {"event": type(event).__name__, **asdict(event)}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


async def main() -> None:
    worker = Worker(app, **told["settings"])
    worker.subscribe(say)
    asked = False

    def stop() -> None:
        nonlocal asked
        if asked:
            worker.stop_now()
        else:
            worker.stop()
        asked = True

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    async with app:
        await worker.run()
    await ledger.close()


if __name__ == "__main__":
    # What the worker has to say it says by events.
    logging.disable()
    asyncio.run(main())
