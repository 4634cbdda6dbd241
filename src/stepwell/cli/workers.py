"""`stepwell workers`: list the workers."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, ago, dump, record, table
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.reads import WorkerInfo


def workers(json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List the registered workers.

    A dead worker stays in the list until a live one has rescued its jobs. "running" is the number of jobs that ran when
    the worker last renewed its lease, and its slots. "holds" counts the jobs that it has claimed of each task, running
    or not. "owner" is the name of its app, or - if the app has none.
    """
    with connect(database) as connection:
        found = fetch(connection, queries.reads.workers())
        held: dict[UUID, dict[str, int]] = {}
        for holds in fetch(connection, queries.reads.held_jobs()):
            held.setdefault(holds.worker_id, {})[holds.task] = holds.count
        now = fetch(connection, queries.reads.clock())[0]
    if json:
        dump([{**record(worker), "holds": held.get(worker.id, {})} for worker in found])
        return
    table(
        found,
        [
            Column("id", lambda worker: worker.id),
            Column("state", _state),
            Column("host", lambda worker: worker.host, cut=True),
            Column("pid", lambda worker: worker.pid, right=True),
            Column("running", lambda worker: f"{worker.running}/{worker.concurrency}", right=True),
            Column("holds", lambda worker: _holds(held.get(worker.id, {})), cut=True),
            Column("started", lambda worker: ago(worker.started_at, now)),
            Column("renewed", lambda worker: ago(worker.renewed_at, now)),
            Column("leads", lambda worker: "yes" if worker.leads else ""),
            Column("owner", _owner, cut=True),
            Column("version", lambda worker: worker.version, cut=True),
            Column("queues", lambda worker: ", ".join(worker.queues), cut=True),
            Column("tasks", lambda worker: ", ".join(worker.tasks), cut=True),
        ],
        empty="no worker is registered",
    )


def _holds(counts: Mapping[str, int]) -> str:
    more = ", ..." if sum(counts.values()) >= queries.reads.MOST_COUNTED else ""
    return ", ".join(f"{task} {count}" for task, count in counts.items()) + more


def _owner(worker: WorkerInfo) -> str:
    # An unnamed app registers the name of its module, which owns no jobs.
    return worker.owner if worker.owner is not None and worker.named is not False else "-"


def _state(worker: WorkerInfo) -> str:
    if not worker.alive:
        return "dead"
    return "stopping" if worker.stopping else "paused" if worker.paused else "alive"
