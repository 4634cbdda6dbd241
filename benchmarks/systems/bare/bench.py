"""The ceiling: Stepwell's schema and SQL in a bare loop, with no engine around it.

It claims a batch, counts the jobs, finishes the batch, and so on: no slots, no handlers, no lease to renew, no retries,
nothing that could go wrong. Two such loops side by side, so that Postgres works on one batch while Python has the
other. With BENCH_STEPS it saves so many steps of each job of the batch in between, one of each at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Any

import psycopg
import uvloop
from program import DSN, aping_each, main, open_tally
from saving import save
from tally import Tally

from stepwell.postgres import queries
from stepwell.postgres.migrate import migrate
from stepwell.postgres.queries.claims import Position

LOOPS = int(os.environ.get("BENCH_LOOPS", "2"))
STEPS = int(os.environ.get("BENCH_STEPS", "0"))
ARGS = os.environ.get("BENCH_ARGS", "{}")
RESULT = "null" if ARGS == "{}" else ARGS
KEEP = 86400.0


def install() -> None:
    """Make the schema."""
    with psycopg.connect(DSN, autocommit=True) as connection:
        migrate(connection)


def fill(jobs: int) -> None:
    """One insert of many rows: `stepwell.enqueue_many` without its checks, its options and its notes."""
    with psycopg.connect(DSN, autocommit=True) as connection:
        connection.execute(INSERT, (ARGS, jobs))


INSERT = """
    insert into stepwell.job (id, run_at, enqueued_at, rank, state, task, queue, args)
    select stepwell.uuid7(), now(), now(), 0, 'ready', 'noop', 'default', %s::json from generate_series(1, %s)
"""

INSERT_AND_NOTIFY = f"with put as ({INSERT}) select pg_notify('stepwell_ready', 'default')"


def work(batch: int) -> None:
    """Claim and finish batches until stopped."""
    uvloop.run(_work(batch))


async def _work(batch: int) -> None:
    connection = await _connect()
    register = queries.fleet.register_worker("bench", os.getpid(), "bare", ["default"], "{}", batch, 86400)
    worker_id = (await _run(connection, register))[0][0]
    await connection.execute("listen stepwell_ready")
    tally = open_tally()
    loops = asyncio.gather(*(_loop(worker_id, batch, tally) for _ in range(LOOPS)), _listen(connection))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, loops.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await loops


_told = asyncio.Event()


async def _listen(connection: psycopg.AsyncConnection[Any]) -> None:
    async for _ in connection.notifies():
        _told.set()


async def _loop(worker_id: str, batch: int, tally: Tally) -> None:
    connection = await _connect()
    position = Position()
    while True:
        _told.clear()
        jobs = await _run(connection, queries.claims.claim(worker_id, ["default"], [position], ["noop"], batch))
        for job in jobs:
            if job[3].startswith('{"sent"'):
                tally.hit_after(int(job[3][9:-1]))
            else:
                tally.hit()
        if jobs:
            last = max(jobs, key=lambda job: (job[7], job[8], job[0]))
            position = Position(last[7], last[8], last[0])
            ids, epochs = [job[0] for job in jobs], [job[5] for job in jobs]
            for n in range(1, STEPS + 1):
                await _run(connection, save(ids, epochs, n))
            count, none = len(jobs), [None] * len(jobs)
            await _run(
                connection, queries.outcomes.finish(ids, epochs, [RESULT] * count, [KEEP], ["succeeded"], none, [])
            )
        elif position == Position():
            await _told.wait()
        else:
            position = Position()


async def _connect() -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(DSN, autocommit=True, prepare_threshold=None)


async def _run(connection: psycopg.AsyncConnection[Any], query: queries.Query[Any]) -> list[Any]:
    return await (await connection.execute(query.text, query.params)).fetchall()


def ping(jobs: int) -> None:
    """A bare insert and a note."""

    async def each() -> None:
        connection = await _connect()

        async def insert(sent: int) -> None:
            await connection.execute(INSERT_AND_NOTIFY, (f'{{"sent": {sent}}}', 1))

        await aping_each(jobs, insert)

    uvloop.run(each())


def left() -> int:
    """Live jobs."""
    with psycopg.connect(DSN) as connection:
        row = connection.execute("select count(*) from stepwell.job").fetchone()
        assert row is not None
        return int(row[0])


main(install=install, fill=fill, work=work, ping=ping, left=left)
