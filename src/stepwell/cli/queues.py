"""`stepwell queues`: list the queues."""

from __future__ import annotations

from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, ago, dump, record, say, table
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch


def queues(json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List the queues that hold live jobs or are paused."""
    with connect(database) as connection:
        found = fetch(connection, queries.reads.queues())
        now = fetch(connection, queries.reads.clock())[0]
        everything = any(pause.scope == "everything" for pause in fetch(connection, queries.fleet.pauses()))
    if json:
        dump([record(queue) for queue in found])
        return
    table(
        found,
        [
            Column("queue", lambda queue: queue.name, cut=True),
            Column("ready", lambda queue: queue.ready, right=True),
            Column("scheduled", lambda queue: queue.scheduled, right=True),
            Column("running", lambda queue: queue.running, right=True),
            Column("waiting", lambda queue: queue.waiting, right=True),
            Column("blocked", lambda queue: queue.blocked, right=True),
            Column("oldest ready", lambda queue: ago(queue.oldest_ready_at, now)),
            Column("paused", lambda queue: ago(queue.paused_at, now)),
        ],
        empty="no queue holds live jobs or is paused",
    )
    if everything:
        say('everything is paused: "stepwell resume --all" resumes it')
