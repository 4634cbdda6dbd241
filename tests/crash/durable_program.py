"""The worker of `test_durable_zombies.py`, told by the variable TOLD: its jobs hold at a gate before they do anything.

Run 1 of a job has a gate of its own, which the test opens first: it goes on when another worker holds the job. What it
then tries to write is named by the job's argument, and how that ended is put down in zombie.said.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from msgspec.structs import asdict

from stepwell import App, Context, Done, Next, Restart, Retry, SyncContext, Worker
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.jobs import JobStarted, JobSucceeded

told: dict[str, Any] = json.loads(os.environ["TOLD"])
app = App(told["dsn"], pool_size=3, retry=Retry(initial="50ms", cap="1s"))


def say(job_id: str, epoch: int, said: str) -> None:
    with psycopg.connect(told["dsn"], autocommit=True) as connection:
        connection.execute("insert into zombie.said values (%s, %s, %s)", (job_id, epoch, said))


def is_held(epoch: int) -> bool:
    return not Path(told["gates"], str(min(epoch, 2))).exists()


async def hold(job_id: str, epoch: int) -> None:
    say(job_id, epoch, "held")
    knows = epoch > 1 or not told["notices"]
    while is_held(epoch) or not knows:
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            knows = True  # it was asked to stop, and does not


def number(epoch: int) -> int:
    return epoch


@app.task
async def child(epoch: int) -> int:
    return epoch


@app.task
async def stubborn(ctx: Context, what: str) -> int | Restart:
    await ctx.step(number, ctx.epoch, key="begun")
    await hold(ctx.id, ctx.epoch)
    try:
        match what:
            case "step":
                await ctx.step(number, ctx.epoch, key="late")
            case "step that fails":
                await ctx.step(fail_first, ctx.epoch, key="late", retry=Retry(max_attempts=1))
            case "now":
                await ctx.now()
            case "child":
                await ctx.spawn(child, ctx.epoch)
            case "transaction":
                async with ctx.transaction("pay") as tx:
                    await tx.execute("insert into zombie.effect values (%s, %s)", (ctx.id, ctx.epoch))
                    await app.aemit("paid", key=ctx.id, value=ctx.epoch, connection=tx.connection)
                    await child.using(connection=tx.connection).aenqueue(ctx.epoch)
            case "first":
                await ctx.first(ctx.step(number, ctx.epoch), ctx.sleep("1d"))
            case "sleep" if ctx.epoch == 1:
                await ctx.sleep("30d")
            case "wait" if ctx.epoch == 1:
                await ctx.wait_for("never")
            case "restart" if ctx.epoch == 1:
                say(ctx.id, ctx.epoch, "returned")
                return Restart("result")
            case "fail" if ctx.epoch == 1:
                raise ValueError("late")
            case _:
                pass
    except BaseException as error:
        say(ctx.id, ctx.epoch, type(error).__name__)
        raise
    say(ctx.id, ctx.epoch, "returned")
    return ctx.epoch


async def fail_first(epoch: int) -> int:
    if epoch == 1:
        raise ValueError("late")
    return epoch


@app.task
def stubborn_plain(ctx: SyncContext, what: str) -> int:
    ctx.step(number, ctx.epoch, key="begun")
    say(ctx.id, ctx.epoch, "held")
    while is_held(ctx.epoch):
        time.sleep(0.02)
    try:
        match what:
            case "step":
                ctx.step(number, ctx.epoch, key="late")
            case "child":
                ctx.spawn(child, ctx.epoch).result()
            case "transaction":
                with ctx.transaction("pay") as tx:
                    tx.execute("insert into zombie.effect values (%s, %s)", (ctx.id, ctx.epoch))
                    app.emit("paid", key=ctx.id, value=ctx.epoch, connection=tx.connection)
            case "sleep" if ctx.epoch == 1:
                ctx.sleep("30d")
            case _:
                pass
    except BaseException as error:
        say(ctx.id, ctx.epoch, type(error).__name__)
        raise
    say(ctx.id, ctx.epoch, "returned")
    return ctx.epoch


async def first(ctx: Context, what: str) -> int | Next[int]:
    await hold(ctx.id, ctx.epoch)
    say(ctx.id, ctx.epoch, "returned")
    return Next(ctx.epoch, after="30d") if what == "move after" and ctx.epoch == 1 else ctx.epoch


async def last(epoch: int) -> int:
    return epoch


app.chain("stubborn_chain", first, last)
machine = app.machine("stubborn_machine")


@machine.state(start=True)
@dataclass
class First:
    what: str

    async def run(self, ctx: Context) -> Next[Last]:
        await hold(ctx.id, ctx.epoch)
        say(ctx.id, ctx.epoch, "returned")
        return Next(Last(ctx.epoch))


@machine.state
@dataclass
class Last:
    epoch: int

    async def run(self) -> Done[int]:
        return Done(self.epoch)


def say_event(event: Telemetry) -> None:
    if not isinstance(event, JobStarted | JobSucceeded):
        sys.stdout.write(json.dumps({"event": type(event).__name__, **asdict(event)}) + "\n")
        sys.stdout.flush()


async def main() -> None:
    worker = Worker(app, **told["settings"])
    worker.subscribe(say_event)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    async with app:
        await worker.run()


if __name__ == "__main__":
    logging.disable()
    asyncio.run(main())
