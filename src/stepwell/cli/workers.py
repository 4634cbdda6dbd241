"""`stepwell workers`."""

from __future__ import annotations

from stepwell import queries
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, ago, dump, record, table
from stepwell.cli.session import DatabaseOption, session
from stepwell.db import fetch
from stepwell.queries import WorkerInfo


def workers(json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List the workers that are registered; a dead one stays until a live one has rescued its jobs."""
    with session(database) as connection:
        found = fetch(connection, queries.workers())
        now = fetch(connection, queries.clock())[0]
    if json:
        dump([record(worker) for worker in found])
        return
    table(
        [
            Column("id"),
            Column("state"),
            Column("host", cut=True),
            Column("pid", right=True),
            Column("running", right=True),
            Column("started"),
            Column("renewed"),
            Column("leads"),
            Column("owner", cut=True),
            Column("version", cut=True),
            Column("queues", cut=True),
            Column("tasks", cut=True),
        ],
        (
            (
                worker.id,
                _state(worker),
                worker.host,
                worker.pid,
                f"{worker.running}/{worker.concurrency}",
                ago(worker.started_at, now),
                ago(worker.renewed_at, now),
                "leads" if worker.leads else "",
                worker.owner or "",
                worker.version,
                ", ".join(worker.queues),
                ", ".join(worker.tasks),
            )
            for worker in found
        ),
        empty="no worker is registered",
    )


def _state(worker: WorkerInfo) -> str:
    if not worker.alive:
        return "dead"
    return "stopping" if worker.stopping else "paused" if worker.paused else "alive"
