"""Where the time goes between the call of `aenqueue` and the first line of the handler, hop by hop.

Producer and worker share one process and one clock, so that each hop can be told from the next. Prints the median of
each hop in microseconds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from typing import Any

import uvloop
from program import DSN

import stepwell.postgres.database
import stepwell.worker.worker_connection
from stepwell import App, Worker
from stepwell.worker.listener import Listener

HOPS = {
    "the call, until the statement is sent": ("called", "enqueue sent"),
    "enqueue: Postgres and its commit": ("enqueue sent", "enqueue answered"),
    "notification, until the listener reads it": ("enqueue answered", "heard"),
    "the listener, until the claim is sent": ("heard", "claim sent"),
    "claim: Postgres and its commit": ("claim sent", "claim answered"),
    "the claim, until the handler's first line": ("claim answered", "begun"),
}
times: dict[str, float] = {}
app = App(DSN)
begun = asyncio.Event()


def mark(name: str) -> None:
    """The first of each counts."""
    times.setdefault(name, time.perf_counter())


fetch = stepwell.postgres.database.afetch
hear = Listener._hear  # pyright: ignore[reportPrivateUsage]


async def marked(connection: Any, query: Any) -> list[Any]:
    """As `afetch`, which both sides go through."""
    name = "enqueue" if "enqueue_many" in query.text else "claim" if "claim_jobs" in query.text else None
    if name:
        mark(f"{name} sent")
    rows = await fetch(connection, query)
    if name and rows:
        mark(f"{name} answered")
    return rows


def heard(self: Listener, channel: str, payload: str) -> None:
    """As `Listener._hear`."""
    if channel == "stepwell_ready_at":
        mark("heard")
    hear(self, channel, payload)


@app.task
async def answer() -> None:
    """Be the last hop."""
    mark("begun")
    begun.set()


async def main(jobs: int) -> None:
    """One job at a time, with a moment in between."""
    found: dict[str, list[float]] = {hop: [] for hop in HOPS}
    async with app, Worker(app):
        for number in range(jobs + 10):
            await asyncio.sleep(0.015)
            times.clear()
            begun.clear()
            mark("called")
            await answer.aenqueue()
            await begun.wait()
            # Notified before the producer read its answer: then the hop between them took no time.
            times["heard"] = max(times["heard"], times["enqueue answered"])
            times["claim sent"] = max(times["claim sent"], times["heard"])
            if number >= 10:
                for hop, (start, end) in HOPS.items():
                    found[hop].append((times[end] - times[start]) * 1e6)
    print(json.dumps({hop: statistics.median(each) for hop, each in found.items()}))


stepwell.postgres.database.afetch = stepwell.worker.worker_connection.afetch = marked
Listener._hear = heard  # pyright: ignore[reportPrivateUsage]
uvloop.run(main(int(sys.argv[1])))
