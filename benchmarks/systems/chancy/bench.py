"""Chancy, with its asyncio executor and its worker in a script, as its documentation starts one.

Of its default plugins those stay that keep jobs safe and the table small (leadership, recovery, pruner). Metrics and
workflows are off, which about doubled the rate. `eager_polling` fetches again when a job ends, and LISTEN/NOTIFY is on.
It acknowledges in batches, after the handlers and by default once in a second (`send_outgoing_interval`): what has run
since then runs again when the worker dies. Here that is 0.1 seconds, so that the end of a queue is not all waiting.
uvloop is not in its documentation, but was faster.
"""

from __future__ import annotations

import psycopg
import uvloop
from chancy import Chancy, Queue, Worker
from program import DSN, aping_each, main


def install() -> None:
    """Make the schema."""
    from tasks import app

    async def migrate() -> None:
        async with app:
            await app.migrate()

    uvloop.run(migrate())


def fill(jobs: int) -> None:
    """Enqueue no-ops by its synchronous call, in its default batches of a thousand."""
    from tasks import app, noop

    with app:
        for _ in app.sync_push_many([noop.job] * jobs):
            pass


def work(concurrency: int) -> None:
    """Be a worker, which ends by SIGTERM."""
    from tasks import app

    queue = Queue(
        "default",
        concurrency=concurrency,
        executor=Chancy.Executor.Async,
        polling_interval=1,
        eager_polling=True,
    )

    async def serve() -> None:
        async with app:
            await app.declare(queue, upsert=True)
            worker = Worker(app)
            worker.send_outgoing_interval = 0.1
            async with worker:
                await worker.wait_for_shutdown()

    uvloop.run(serve())


def ping(jobs: int) -> None:
    """One job at a time."""
    from tasks import answer, app

    async def each() -> None:
        async with app:
            await aping_each(jobs, lambda sent: app.push(answer.job.with_kwargs(sent=sent)))

    uvloop.run(each())


def left() -> int:
    """Jobs in no final state."""
    with psycopg.connect(DSN) as connection:
        row = connection.execute(
            "select count(*) from chancy_jobs where state in ('pending', 'running', 'retrying')"
        ).fetchone()
        assert row is not None
        return int(row[0])


main(install=install, fill=fill, work=work, ping=ping, left=left)
