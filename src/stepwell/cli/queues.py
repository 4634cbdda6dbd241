"""`stepwell queues`."""

from __future__ import annotations

from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, ago, dump, record, say, table
from stepwell.cli.session import DatabaseOption, session
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch


def queues(json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List the queues that hold live jobs or are paused."""
    with session(database) as connection:
        found = fetch(connection, queries.reads.queues())
        now = fetch(connection, queries.reads.clock())[0]
        everything = any(pause.scope == "everything" for pause in fetch(connection, queries.fleet.pauses()))
    if json:
        dump([record(queue) for queue in found])
        return
    table(
        [
            Column("queue", cut=True),
            *(Column(state, right=True) for state in ("ready", "scheduled", "running", "waiting", "blocked")),
            Column("oldest ready"),
            Column("paused"),
        ],
        (
            (
                queue.name,
                queue.ready,
                queue.scheduled,
                queue.running,
                queue.waiting,
                queue.blocked,
                ago(queue.oldest_ready_at, now),
                ago(queue.paused_at, now),
            )
            for queue in found
        ),
        empty="no queue holds live jobs or is paused",
    )
    if everything:
        say('everything is paused: "stepwell resume --all" ends that')
