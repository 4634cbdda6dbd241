"""`stepwell queues`: list the queues, and change their settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from stepwell.cli import known_names, parse
from stepwell.cli.completion import complete_queue
from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, ago, dump, record, say, table
from stepwell.cli.rate_options import BurstOption, SmoothOption, burst_text, check_burst
from stepwell.errors import StepwellError
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.limits import QueueSettings
from stepwell.postgres.queries.reads import QueueInfo
from stepwell.values.setting_text import keep_text, rate_text

group = typer.Typer(rich_markup_mode=None)

QueueArgument = Annotated[
    str, typer.Argument(autocompletion=complete_queue, metavar="QUEUE", help="The queue.", show_default=False)
]


@group.callback(invoke_without_command=True)
def queues(context: typer.Context, json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List the queues that hold live jobs, are paused or have settings."""
    if context.invoked_subcommand is not None:
        return
    with connect(database) as connection:
        found = fetch(connection, queries.reads.queues())
        now = fetch(connection, queries.reads.clock())[0]
        everything = any(pause.scope == "everything" for pause in fetch(connection, queries.fleet.pauses()))
    if json:
        dump([_record(queue) for queue in found])
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
            Column("keep", _keep),
            Column("oldest ready", lambda queue: ago(queue.oldest_ready_at, now)),
            Column("paused", lambda queue: ago(queue.paused_at, now)),
        ],
        empty="no queue holds live jobs, is paused or has settings",
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
    burst: BurstOption = None,
    smooth: SmoothOption = False,
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="TIME", help="How long succeeded jobs are kept, as 1d.", show_default=False),
    ] = None,
    keep_failed: Annotated[
        str | None,
        typer.Option(
            "--keep-failed", metavar="TIME", help="How long failed and cancelled jobs are kept.", show_default=False
        ),
    ] = None,
    paused: Annotated[
        bool | None, typer.Option("--paused/--no-paused", help="Pause or resume the queue.", show_default=False)
    ] = None,
    database: DatabaseOption = None,
) -> None:
    """Set the limit or rate of a queue, how long its jobs are kept, or pause or resume it.

    The settings hold for all jobs of the queue, over all workers, also for those that wait already, and take effect at
    once. Jobs that run go on, and count. How long a job is kept is decided when it ends, and its own setting or that of
    its task comes first. 'stepwell queues unset' removes settings.
    """
    if all(given is None for given in (limit, rate, keep, keep_failed, paused)):
        raise parse.UsageError(
            "set what? Give --limit N, --rate 50/s, --keep 1d, --keep-failed 30d, --paused or --no-paused"
        )
    check_burst(rate, burst, smooth)
    count, per = (None, 1.0) if rate is None else parse.rate(rate, "--rate")
    name = parse.name(queue, "QUEUE")
    kept = None if keep is None else parse.keep(keep, "--keep")
    kept_failed = None if keep_failed is None else parse.keep(keep_failed, "--keep-failed")
    settings = QueueSettings(limit, count, per, burst, kept, kept_failed, paused, smooth=smooth)
    with connect(database) as connection:
        fetch(connection, queries.limits.set_queue(name, settings))
        if limit is not None:
            say(f"at most {limit} of queue {name} run at once")
        if rate is not None:
            say(f"at most {rate} of queue {name} start{burst_text(burst, smooth)}")
        if kept is not None:
            say(f"succeeded jobs of queue {name} are kept: {keep_text(kept)}")
        if kept_failed is not None:
            say(f"failed and cancelled jobs of queue {name} are kept: {keep_text(kept_failed)}")
        if paused is not None:
            say(f"queue {name} is {'paused' if paused else 'resumed'}")
        known_names.warn_of(connection, {"queue": name})


@group.command()
def unset(
    queue: QueueArgument,
    limit: Annotated[bool, typer.Option("--limit", help="Only the limit.")] = False,
    rate: Annotated[bool, typer.Option("--rate", help="Only the rate.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Only how long succeeded jobs are kept.")] = False,
    keep_failed: Annotated[
        bool, typer.Option("--keep-failed", help="Only how long failed and cancelled jobs are kept.")
    ] = False,
    database: DatabaseOption = None,
) -> None:
    """Remove the settings of a queue, or those that are named. A pause stays: 'stepwell resume' ends it."""
    name = parse.name(queue, "QUEUE")
    named = {"limit": limit, "rate": rate, "keep": keep, "keep_failed": keep_failed}
    wanted = tuple(setting for setting, given in named.items() if given) or tuple(named)
    with connect(database) as connection:
        found = fetch(connection, queries.reads.queues())
        having = {each.name: [word for word in wanted if getattr(each, word) is not None] for each in found}
        if not having.get(name):
            raise StepwellError(
                f"queue {name!r} has no {_listed(wanted)}{known_names.nearest(name, [q for q in having if having[q]])}"
            )
        fetch(connection, queries.limits.set_queue(name, QueueSettings(remove=tuple(having[name]))))
    say(f"queue {name} has no {_listed(wanted)}")


def _record(queue: QueueInfo) -> dict[str, Any]:
    lengths = {"keep": queue.keep, "keep_failed": queue.keep_failed}
    # JSON has no infinity.
    return record(queue) | {name: "forever" if length == math.inf else length for name, length in lengths.items()}


def _listed(settings: Sequence[str]) -> str:
    return " or ".join(setting.replace("_", "-") for setting in settings)


def _keep(queue: QueueInfo) -> str:
    kept = [] if queue.keep is None else [keep_text(queue.keep)]
    return ", ".join([*kept, *([] if queue.keep_failed is None else [f"failed {keep_text(queue.keep_failed)}"])])
