"""A worker of tasks with every rule of admission, which the tests kill. The variable TOLD has the database.

Each run notes its start and its end by itself, so that the test can count how many there were at once. The tests import
the tasks of this module to enqueue them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from stepwell import App, Call, Context, GroupSummary, Limit, Rate, Retry, Unique, Worker
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.worker import WorkerStarted

TABLES = """
create table ran (job_id uuid not null, epoch int not null, phase text not null,
  at timestamptz not null default clock_timestamp());
create table told (group_id uuid not null)
"""
LIMITS = {"k0": 1, "k1": 2, "k2": 2, "all": 3, "parents": 2}
INTERVAL, BURST = 0.01, 5


def build(dsn: str) -> tuple[App, Callable[[random.Random], Call[Any]]]:
    """The app, and what makes random calls of its tasks."""
    app = App(dsn, name="flow", pool_size=3, retry=Retry(initial="20ms", cap="100ms", max_attempts=50))

    @asynccontextmanager
    async def noted(ctx: Context) -> AsyncGenerator[None]:
        note = "insert into ran (job_id, epoch, phase) values (%s, %s, %s)"
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as ledger:
            await ledger.execute(note, (ctx.id, ctx.epoch, "start"))
            await asyncio.sleep(random.uniform(0, 0.02))
            yield
            await ledger.execute(note, (ctx.id, ctx.epoch, "end"))

    @app.task(limits=[Limit(2, key="k{k}"), Limit(3, key="all")], fair="{k}")
    async def limited(ctx: Context, k: int) -> int:
        async with noted(ctx):
            return k

    app.schedule("1s", args={"k": 1})(limited)

    # One key has one limit for all tasks: of k0 it is set at run time.
    @app.task(limit=Limit(2, key="k{k}"), rate=Rate(100, per="1s", burst=BURST, key="rate"))
    async def rated(ctx: Context, k: int) -> int:
        async with noted(ctx):
            if ctx.attempt == 1 and k == 1:
                raise ValueError("again")
            return k

    @app.task(unique="{n}")
    async def single(ctx: Context, n: int) -> None:
        async with noted(ctx):
            pass

    @app.task(unique=Unique("{n}", until="start"), limit=Limit(3, key="all"))
    async def waiting(ctx: Context, n: int) -> None:
        async with noted(ctx):
            pass

    @app.task(limit=Limit(2, key="parents", hold=True))
    async def parent(ctx: Context, k: int) -> int:
        async with noted(ctx):
            await ctx.step(_step, k)
        await ctx.sleep(0.01)
        child = ctx.spawn(limited, k=k)
        return await child

    @app.task(batch=10, batch_wait="5ms", fair="{n}")
    async def batched(n: list[int]) -> list[int]:
        return n

    @app.task(transaction=True)
    async def tell(ctx: Context, summary: GroupSummary) -> None:
        await ctx.connection.execute("insert into told (group_id) values (%s)", (summary.id,))

    def call(dice: random.Random) -> Call[Any]:
        k, n = dice.randrange(3), dice.randrange(10)
        calls: list[Call[Any]] = [
            limited.call(k=k), limited.call(k=k), rated.call(k=k), parent.call(k=k),
            single.call(n=n), waiting.call(n=n), batched.call(n),
        ]  # fmt: skip
        return dice.choice(calls)

    return app, call


async def _step(k: int) -> int:
    return k


def _say(event: Telemetry) -> None:
    if isinstance(event, WorkerStarted):
        sys.stdout.write('{"event": "WorkerStarted"}\n')
        sys.stdout.flush()


async def main() -> None:
    app, _ = build(json.loads(os.environ["TOLD"])["dsn"])
    worker = Worker(app, concurrency=20, lease="6s", renew="2s")
    worker.subscribe(_say)
    async with app:
        await worker.run()


if __name__ == "__main__":
    logging.disable()
    asyncio.run(main())
