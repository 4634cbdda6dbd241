"""`stepwell queues`, `pause` and `resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from stepwell import queries
from stepwell.cli import usage
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, ago, dump, record, say, table
from stepwell.cli.session import DatabaseOption, session
from stepwell.db import fetch

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.", show_default=False)]


def queues(json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List the queues that hold live jobs or are paused."""
    with session(database) as connection:
        found = fetch(connection, queries.queues())
        now = fetch(connection, queries.clock())[0]
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


def pause(queue: QueueArgument, database: DatabaseOption = None) -> None:
    """Claim nothing more from a queue until it is resumed; what runs goes on."""
    asked = queries.pause(usage.name(queue, "QUEUE"))
    with session(database) as connection:
        fetch(connection, asked)
    say(f"queue {queue} is paused")


def resume(queue: QueueArgument, database: DatabaseOption = None) -> None:
    """Claim from a paused queue again."""
    asked = queries.resume(usage.name(queue, "QUEUE"))
    with session(database) as connection:
        fetch(connection, asked)
    say(f"queue {queue} is not paused")
