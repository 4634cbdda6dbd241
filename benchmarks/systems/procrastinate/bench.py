"""Procrastinate, as `procrastinate worker` runs it.

It fetches and acknowledges jobs one by one, so there is no batch to set; a larger pool and `--delete-jobs` showed no
clear gain, and stay at their defaults. Bulk enqueue is `batch_defer`. LISTEN/NOTIFY is on, as by default, with a poll
each 0.1 s instead of 5 s, because it can miss a notification that comes while it fetches.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import psycopg
from program import DSN, aflow, aping_each, main

_PROCRASTINATE = [sys.executable, "-m", "procrastinate", "--app", "tasks.app"]


def install() -> None:
    """Make the schema."""
    subprocess.run([*_PROCRASTINATE, "schema", "--apply"], check=True, stderr=subprocess.DEVNULL)


def fill(jobs: int) -> None:
    """Enqueue no-ops in one call."""
    from tasks import app, noop

    with app.open():
        noop.batch_defer(*[{}] * jobs)


def work(concurrency: int) -> None:
    """Become `procrastinate worker`."""
    worker = ["worker", "--concurrency", str(concurrency), "--fetch-job-polling-interval", "0.1"]
    os.execv(sys.executable, [*_PROCRASTINATE, "--log-level", "warning", *worker])


def ping(jobs: int) -> None:
    """One job at a time."""
    from tasks import answer, app

    async def each() -> None:
        async with app.open_async():
            await aping_each(jobs, lambda sent: answer.defer_async(sent=sent))

    asyncio.run(each())


def flow(rate: int) -> None:
    """A steady load."""
    from tasks import answer, app

    async def each() -> None:
        async with app.open_async():
            await aflow(rate, lambda times: answer.batch_defer_async(*[{"sent": sent} for sent in times]))

    asyncio.run(each())


def left() -> int:
    """Jobs to do or being done."""
    with psycopg.connect(DSN) as connection:
        found = connection.execute("select count(*) from procrastinate_jobs where status in ('todo', 'doing')")
        row = found.fetchone()
        assert row is not None
        return int(row[0])


main(install=install, fill=fill, work=work, ping=ping, left=left, flow=flow)
