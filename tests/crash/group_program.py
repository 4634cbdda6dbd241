"""A worker of members and callbacks of groups, which the tests kill. The variable TOLD has the database.

The callback writes the summary that it got in the transaction of its job, so each line is a callback that has ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
from typing import Any

from stepwell import App, Context, Fail, GroupSummary, Retry, Worker
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.worker import WorkerStarted

told: dict[str, Any] = json.loads(os.environ["TOLD"])
app = App(told["dsn"], pool_size=3, retry=Retry(initial="20ms", cap="100ms", max_attempts=50))


@app.task
async def member(ctx: Context, n: int) -> int:
    await asyncio.sleep(random.uniform(0, 0.02))
    if n % 7 == 3:
        raise Fail("seven")
    if n % 7 == 4 and ctx.attempt < 2:
        raise ValueError("again")
    return n


@app.task(keep=0)
async def forgotten(n: int) -> None: ...


@app.task(transaction=True)
async def in_transaction(ctx: Context, n: int) -> None:
    await ctx.connection.execute("insert into paid (job_id) values (%s)", (ctx.id,))


@app.task(transaction=True)
async def tell(ctx: Context, summary: GroupSummary) -> None:
    await ctx.connection.execute(
        "insert into told (group_id, total, succeeded, failed, cancelled, failures) values (%s, %s, %s, %s, %s, %s)",
        (summary.id, summary.total, summary.succeeded, summary.failed, summary.cancelled, len(summary.failures)),
    )


def say(event: Telemetry) -> None:
    if isinstance(event, WorkerStarted):
        sys.stdout.write('{"event": "WorkerStarted"}\n')
        sys.stdout.flush()


async def main() -> None:
    worker = Worker(app, concurrency=20, lease="6s", renew="2s")
    worker.subscribe(say)
    async with app:
        await worker.run()


if __name__ == "__main__":
    logging.disable()
    asyncio.run(main())
