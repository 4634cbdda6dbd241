"""PgQueuer, by `pgqueuer.run`, which its documentation gives as the same as the command `pgq run`.

That command does not start in this version with the newest Typer. The settings are those of its tuning guide: asyncpg
on uvloop, one connection for the worker, `pgq autovac`, durable tables. The batch is as large as the concurrency, and
the tasks at a time are not capped, as by default: a cap costs it a count of rows for each fetch. So it may run more of
them than the others. It acknowledges after the handler, in batches, about 0.1 s later at most.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg
import pgqueuer
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from program import DSN, aflow, aping_each, main, open_tally


def install() -> None:
    """Make the schema, and set autovacuum as its documentation asks for."""
    for command in ("install", "autovac"):
        subprocess.run([sys.executable, "-m", "pgqueuer", "--pg-dsn", DSN, command], check=True, capture_output=True)


def fill(jobs: int) -> None:
    """Enqueue no-ops in one call."""

    async def enqueue() -> None:
        async with _queries() as queries:
            await queries.enqueue(["noop"] * jobs, [None] * jobs, [0] * jobs)

    uvloop.run(enqueue())


def work(concurrency: int) -> None:
    """Run until SIGTERM."""
    logging.getLogger("pgqueuer").setLevel(logging.WARNING)
    uvloop.run(pgqueuer.run(_worker, batch_size=concurrency))


@asynccontextmanager
async def _worker() -> AsyncGenerator[PgQueuer]:
    tally = open_tally()
    connection = await asyncpg.connect(DSN)
    worker = PgQueuer.from_asyncpg_connection(connection)

    @worker.entrypoint("noop")
    async def noop(_job: Job) -> None:
        tally.hit()

    @worker.entrypoint("answer")
    async def answer(job: Job) -> None:
        assert job.payload is not None
        tally.hit_after(int(job.payload))

    try:
        yield worker
    finally:
        await connection.close()


def ping(jobs: int) -> None:
    """One job at a time."""

    async def each() -> None:
        async with _queries() as queries:
            await aping_each(jobs, lambda sent: queries.enqueue("answer", str(sent).encode()))

    uvloop.run(each())


def flow(rate: int) -> None:
    """A steady load."""

    async def each() -> None:
        async with _queries() as queries:
            await aflow(
                rate,
                lambda times: queries.enqueue(
                    ["answer"] * len(times), [str(sent).encode() for sent in times], [0] * len(times)
                ),
            )

    uvloop.run(each())


def left() -> int:
    """Jobs that are queued or picked: a finished one moves to the log."""

    async def count() -> int:
        async with _queries() as queries:
            query = "select count(*) as jobs from pgqueuer where status in ('queued', 'picked')"
            return int(str((await queries.driver.fetch(query))[0]["jobs"]))

    return uvloop.run(count())


@asynccontextmanager
async def _queries() -> AsyncGenerator[Queries]:
    connection = await asyncpg.connect(DSN)
    try:
        yield Queries.from_asyncpg_connection(connection)
    finally:
        await connection.close()


main(install=install, fill=fill, work=work, ping=ping, left=left, flow=flow)
