"""`stepwell workers`: list the workers."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, ago, dump, record, table
from stepwell.postgres import queries
from stepwell.postgres.database import fetch
from stepwell.postgres.queries import WorkerInfo


def workers(json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List the registered workers.

    A dead worker stays in the list until a live one has rescued its jobs. "running" is the number of jobs that ran when
    the worker last renewed its lease, and its slots. "holds" counts the jobs that it has claimed of each task, running
    or not. "owner" is the name of its app, or - if the app has none.
    """
    with connect(database) as connection:
        found = fetch(connection, queries.workers())
        held: dict[UUID, dict[str, int]] = {}
        for holds in fetch(connection, queries.held_jobs()):
            held.setdefault(holds.worker_id, {})[holds.task] = holds.count
        now = fetch(connection, queries.clock())[0]
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
                "yes" if worker.leads else "",
                _owner(worker),
                worker.version,
                ", ".join(worker.queues),
                ", ".join(worker.tasks),
            )
            for worker in found
        ),
        empty="no worker is registered",
    )


def _holds(counts: Mapping[str, int]) -> str:
    more = ", ..." if sum(counts.values()) >= queries.MOST_COUNTED else ""
    return ", ".join(f"{task} {count}" for task, count in counts.items()) + more


def _owner(worker: WorkerInfo) -> str:
    # An unnamed app registers the name of its module, which owns no jobs.
    return worker.owner if worker.owner is not None and worker.named is not False else "-"


def _state(worker: WorkerInfo) -> str:
    if not worker.alive:
        return "dead"
    return "stopping" if worker.stopping else "paused" if worker.paused else "alive"
