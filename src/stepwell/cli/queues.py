"""`stepwell queues`: list the queues, and set their limits."""

from __future__ import annotations

from typing import Annotated

import typer

from stepwell.cli import known_names, parse
from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, ago, dump, record, say, table
from stepwell.cli.wording import rate_text
from stepwell.errors import StepwellError
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.fleet import Target

group = typer.Typer(rich_markup_mode=None)

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False)]


@group.callback(invoke_without_command=True)
def queues(context: typer.Context, json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List the queues that hold live jobs, are paused or have a limit."""
    if context.invoked_subcommand is not None:
        return
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
            Column("limit", lambda queue: queue.limit, right=True),
            Column("rate", lambda queue: None if queue.rate is None else rate_text(queue.rate), right=True),
            Column("oldest ready", lambda queue: ago(queue.oldest_ready_at, now)),
            Column("paused", lambda queue: ago(queue.paused_at, now)),
        ],
        empty="no queue holds live jobs, is paused or has a limit",
    )
    if everything:
        say('everything is paused: "stepwell resume --all" resumes it')


@group.command("set")
def change(
    queue: QueueArgument,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", help="At most N of its jobs run at once; 0: none.", show_default=False),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="RATE", help="So many of its jobs start, as 50/s.", show_default=False),
    ] = None,
    burst: Annotated[
        int | None,
        typer.Option("--burst", metavar="N", help="So many may start at once after a pause.", show_default=False),
    ] = None,
    paused: Annotated[
        bool | None, typer.Option("--paused/--resumed", help="Pause or resume the queue.", show_default=False)
    ] = None,
    database: DatabaseOption = None,
) -> None:
    """Set the limit or rate of a queue, or pause or resume it.

    They hold for all jobs of the queue, over all workers, also for those that wait already, and take effect at once.
    Jobs that run go on, and count. 'stepwell queues unset' removes both.
    """
    if limit is None and rate is None and paused is None:
        raise parse.UsageError("set what? Give --limit N, --rate 50/s, --paused or --resumed")
    if burst is not None and rate is None:
        raise parse.UsageError("--burst needs --rate")
    count, per = (None, None) if rate is None else parse.rate(rate, "--rate")
    name = parse.name(queue, "QUEUE")
    with connect(database) as connection:
        if limit is not None:
            fetch(connection, queries.limits.set_queue_limit(name, limit))
            say(f"at most {limit} of queue {name} run at once")
        if count is not None:
            fetch(connection, queries.limits.set_queue_rate(name, count, per, burst))
            say(f"at most {rate} of queue {name} start" + (f", up to {burst} at once" if burst is not None else ""))
        if paused is not None:
            if paused:
                fetch(connection, queries.fleet.pause(Target(name)))
            else:
                fetch(connection, queries.fleet.resume(Target(name)))
            say(f"queue {name} is {'paused' if paused else 'resumed'}")
        known_names.warn_of(connection, {"queue": name})


@group.command()
def unset(queue: QueueArgument, database: DatabaseOption = None) -> None:
    """Remove the limit and the rate of a queue. A pause stays: 'stepwell resume' ends it."""
    name = parse.name(queue, "QUEUE")
    with connect(database) as connection:
        found = fetch(connection, queries.reads.queues())
        limited = [each.name for each in found if each.limit is not None or each.rate is not None]
        if name not in limited:
            raise StepwellError(f"queue {name!r} has no limit and no rate{known_names.nearest(name, limited)}")
        fetch(connection, queries.limits.set_queue_limit(name, None))
        fetch(connection, queries.limits.set_queue_rate(name, None, None, None))
    say(f"queue {name} has no limit and no rate")
