"""DBOS Transact, as a script that launches it and registers a queue.

The queue's `polling_interval_sec` is 0.01 and not the default of 1: DBOS has no other wake-up for a queue, and takes at
most its free slots at each poll. Less was slower. Workflows are synchronous, in its threads: asynchronous ones were
slower. Its pool is its default of 20 connections. Many jobs are enqueued in one transaction, by
`enqueue_in_transaction`. Each process has its own `executor_id`, as its documentation asks for. Without its Conductor,
what a dead process had taken runs again only when a process with the same `executor_id` starts. Steps are synchronous
functions with its decorator, called one after the other.
"""

from __future__ import annotations

import os
import signal

import psycopg
import sqlalchemy
from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions
from program import DSN, main, open_tally, ping_each

_QUEUE = "bench"
_TASK = os.environ.get("BENCH_TASK", "noop")
tally = open_tally()


@DBOS.workflow(name="noop")
def noop() -> None:
    """Nothing."""
    tally.hit()


@DBOS.step()
def nothing() -> None:
    """A step that costs no more than being one."""


@DBOS.workflow(name="five_steps")
def five_steps() -> None:
    """Five steps, one after the other."""
    tally.hit()  # first: the clock runs from here
    for _ in range(5):
        nothing()


@DBOS.workflow(name="answer")
def answer(sent: int) -> None:
    """Say how long it took to get here."""
    tally.hit_after(sent)


def launch() -> None:
    """Be a process of the application."""
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": DSN,
        "log_level": "WARNING",
        "executor_id": str(os.getpid()),
    }
    DBOS(config=config)
    DBOS.launch()


def install() -> None:
    """Make the schema, which a launch does."""
    launch()
    DBOS.register_queue(_QUEUE)
    DBOS.destroy()


def fill(jobs: int) -> None:
    """Enqueue in one transaction."""
    client = DBOSClient(system_database_url=DSN)
    engine = sqlalchemy.create_engine(DSN.replace("postgresql://", "postgresql+psycopg://"))
    options: EnqueueOptions = {"workflow_name": _TASK, "queue_name": _QUEUE}
    with engine.begin() as connection:
        for _ in range(jobs):
            client.enqueue_in_transaction(connection, options)
    client.destroy()


def work(concurrency: int) -> None:
    """Be a worker until SIGTERM."""
    # Before its threads start, so that none of them gets the signal instead of this one.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    launch()
    DBOS.register_queue(_QUEUE, worker_concurrency=concurrency, polling_interval_sec=0.01)
    signal.sigwait({signal.SIGTERM})
    DBOS.destroy()


def ping(jobs: int) -> None:
    """One job at a time."""
    client = DBOSClient(system_database_url=DSN)
    options: EnqueueOptions = {"workflow_name": "answer", "queue_name": _QUEUE}
    ping_each(jobs, lambda sent: client.enqueue(options, sent))
    client.destroy()


def left() -> int:
    """Workflows in no final state."""
    with psycopg.connect(DSN) as connection:
        row = connection.execute(
            "select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING', 'DELAYED')"
        ).fetchone()
        assert row is not None
        return int(row[0])


main(install=install, fill=fill, work=work, ping=ping, left=left)
