"""Stepwell, as `stepwell worker` runs it."""

from __future__ import annotations

import json
import os
import sys

import psycopg
import uvloop
from program import DSN, aflow, aping_each, main

from stepwell.postgres.migrate import migrate

TASK = os.environ.get("BENCH_TASK", "noop")
ARGS = os.environ.get("BENCH_ARGS", "{}")
GROUPS = int(os.environ.get("BENCH_GROUPS", "0"))
KEYS = int(os.environ.get("BENCH_KEYS", "0"))
QUEUES = os.environ.get("BENCH_QUEUES", "default").split(",")


def install() -> None:
    """Make the schema."""
    with psycopg.connect(DSN, autocommit=True) as connection:
        migrate(connection)


def fill(jobs: int) -> None:
    """Enqueue in one call, or as groups with a callback."""
    from tasks import app, grouped

    if GROUPS:
        calls = [app.tasks[TASK].call(**json.loads(ARGS))] * (jobs // GROUPS)
        for _ in range(GROUPS):
            app.group(calls, then=grouped)
        return
    if KEYS:
        app.tasks[TASK].enqueue_many([{"key": number % KEYS} for number in range(jobs)])
    else:
        app.tasks[TASK].enqueue_many([json.loads(ARGS)] * jobs)


def work(concurrency: int) -> None:
    """Become `stepwell worker`."""
    argv = [sys.executable, "-m", "stepwell", "worker", "tasks:app", "--concurrency", str(concurrency)]
    for queue in QUEUES:
        argv += ["--queue", queue]
    os.execv(sys.executable, [*argv, "--log-level", "warning"])


def ping(jobs: int) -> None:
    """One job at a time."""
    from tasks import answer, app

    async def each() -> None:
        async with app:
            await aping_each(jobs, lambda sent: answer.aenqueue(sent))

    uvloop.run(each())


def flow(rate: int) -> None:
    """A steady load."""
    from tasks import answer, app

    async def put(times: list[int]) -> None:
        await answer.aenqueue_many([{"sent": sent} for sent in times])

    async def each() -> None:
        async with app:
            await aflow(rate, put)

    uvloop.run(each())


def left() -> int:
    """Jobs that a worker has or could have: by their indexes, however many sleep beside them."""
    with psycopg.connect(DSN) as connection:
        row = connection.execute(
            "select (select count(*) from stepwell.job where state = 'ready')"
            " + (select count(*) from stepwell.job where state = 'running')"
            " + (select count(*) from stepwell.job where blocked_by is not null)"
        ).fetchone()
        assert row is not None
        return int(row[0])


main(install=install, fill=fill, work=work, ping=ping, left=left, flow=flow)
