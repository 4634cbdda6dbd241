"""The least lateness: Stepwell's SQL in a bare loop that sleeps until the next job, or the next tick, is due."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from typing import Any

import psycopg
import uvloop
from program import DSN

from stepwell.postgres import queries
from stepwell.postgres.fetch import afetch
from stepwell.postgres.queries.claims import Position
from stepwell.worker.upkeep.ticker import due_ticks

LONGEST_NAP = 5.0
KEEP = 86400.0

Connection = psycopg.AsyncConnection[Any]


async def promote(connection: Connection) -> float:
    """Make due jobs ready. In how many seconds is the next one due?"""
    [promoted] = await afetch(connection, queries.upkeep.promote())
    return LONGEST_NAP if promoted.next_due is None else promoted.next_due


async def fire(connection: Connection) -> float:
    """Fire due schedules. In how many seconds is the next one due?"""
    found = await afetch(connection, queries.schedules.due_schedules([]))
    due = [schedule for schedule in found if schedule.due_in <= 0]
    if due:
        reckoned = [due_ticks(schedule) for schedule in due]
        await afetch(
            connection, queries.schedules.tick(due, [after for _, after in reckoned], [ticks for ticks, _ in reckoned])
        )
        return 0.0
    return found[0].due_in if found else LONGEST_NAP


async def main(what: str) -> None:
    """Until stopped."""
    make_ready, channel = (fire, "stepwell_tick") if what == "schedules" else (promote, "stepwell_due")
    connection, listening = await _connect(), await _connect()
    await listening.execute(f"listen {channel}")
    register = queries.fleet.register_worker("bench", os.getpid(), "bare", ["default"], "{}", 100, 86400)
    [worker_id] = await afetch(connection, register)
    told = asyncio.Event()

    async def listen() -> None:
        async for _ in listening.notifies():
            told.set()

    async def loop() -> None:
        while True:
            told.clear()
            nap = await make_ready(connection)
            jobs = await afetch(connection, queries.claims.claim(worker_id, ["default"], [Position()], ["late"], 100))
            began = [str(time.time_ns() // 1000) for _ in jobs]
            if jobs:
                ids, epochs = [job.id for job in jobs], [job.epoch for job in jobs]
                none = [None] * len(jobs)
                await afetch(connection, queries.outcomes.finish(ids, epochs, began, [KEEP], ["succeeded"], none, []))
            elif nap > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(told.wait(), nap)

    await asyncio.gather(listen(), loop())


async def _connect() -> Connection:
    return await psycopg.AsyncConnection.connect(DSN, autocommit=True, prepare_threshold=None)


uvloop.run(main(sys.argv[1]))
