"""SAQ's Postgres queue, as `saq tasks.settings` runs it.

It wakes by LISTEN/NOTIFY, which is its default. The pool is its default of 4 to 20 connections: other sizes, and a pool
that does not test each connection, were no faster. uvloop is not in its documentation, but was faster. It takes as many
jobs at a time as it has free slots. There is no call for many jobs: they are enqueued together, as its `map` does it.
By default a job has one attempt, so one that its worker's death cut off is marked as aborted, and is not run again.
"""

from __future__ import annotations

import asyncio
import os
import sys

import psycopg
from program import DSN, aping_each, main

# So many calls at once keep the pool busy, and none waits in it for as long as its timeout.
_TOGETHER = 1000


def install() -> None:
    """Make the schema, which a queue does when it connects."""
    from tasks import queue

    async def connect() -> None:
        await queue.connect()
        await queue.disconnect()

    asyncio.run(connect())


def fill(jobs: int) -> None:
    """Enqueue no-ops, over all connections of the pool."""
    from tasks import queue

    async def enqueue() -> None:
        await queue.connect()
        for start in range(0, jobs, _TOGETHER):
            await asyncio.gather(*(queue.enqueue("noop") for _ in range(min(_TOGETHER, jobs - start))))
        await queue.disconnect()

    asyncio.run(enqueue())


def work(concurrency: int) -> None:
    """Become `saq`, which logs warnings and no less."""
    os.environ["SAQ_CONCURRENCY"] = str(concurrency)
    os.execv(sys.executable, [sys.executable, "-m", "saq", "tasks.settings"])


def ping(jobs: int) -> None:
    """One job at a time."""
    from tasks import queue

    async def each() -> None:
        await queue.connect()
        await aping_each(jobs, lambda sent: queue.enqueue("answer", sent=sent))
        await queue.disconnect()

    asyncio.run(each())


def left() -> int:
    """Jobs in no final state."""
    with psycopg.connect(DSN) as connection:
        row = connection.execute(
            "select count(*) from saq_jobs where status in ('new', 'queued', 'active', 'aborting')"
        ).fetchone()
        assert row is not None
        return int(row[0])


main(install=install, fill=fill, work=work, ping=ping, left=left)
