"""`stepwell workers`."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, ago, dump, record, table
from stepwell.cli.session import DatabaseOption, session
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.reads import WorkerInfo


def workers(json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List the workers that are registered; a dead one stays until a live one has rescued its jobs.

    "running" is how many jobs ran when the worker last renewed its lease, of how many at most. "holds" is how many it
    has claimed of each task by now, those included that it has not begun.
    """
    with session(database) as connection:
        found = fetch(connection, queries.reads.workers())
        held: dict[UUID, dict[str, int]] = {}
        for holds in fetch(connection, queries.reads.held_jobs()):
            held.setdefault(holds.worker_id, {})[holds.task] = holds.count
        now = fetch(connection, queries.reads.clock())[0]
    if json:
        dump([{**record(worker), "holds": held.get(worker.id, {})} for worker in found])
        return
    table(
        [
            Column("id"),
            Column("state"),
            Column("host", cut=True),
            Column("pid", right=True),
            Column("running", right=True),
            Column("holds", cut=True),
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
                _holds(held.get(worker.id, {})),
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


def _holds(counts: Mapping[str, int]) -> str:
    more = ", ..." if sum(counts.values()) >= queries.reads.MOST_COUNTED else ""
    return ", ".join(f"{task} {count}" for task, count in counts.items()) + more


def _state(worker: WorkerInfo) -> str:
    if not worker.alive:
        return "dead"
    return "stopping" if worker.stopping else "paused" if worker.paused else "alive"
