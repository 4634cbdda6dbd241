"""`stepwell bulk`: the bulk operations, and how a command works one off in the foreground."""

from __future__ import annotations

import time
from typing import Annotated, Any, NoReturn

import typer

from stepwell.cli import parse
from stepwell.cli.database import DatabaseOption, open_database
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, compact, complain, dump, fields, hidden_fields, record, say, table
from stepwell.cli.progress import progress
from stepwell.errors import StepwellError
from stepwell.jobs.bulk_operation import MOST_COUNTED
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.postgres.queries.bulk import Bulk
from stepwell.telemetry.bus import counted
from stepwell.values.duration import describe, local_time
from stepwell.web.reads.bulk import shown_filter

group = typer.Typer(rich_markup_mode=None)

_SHORTEST_PAUSE = 0.005
_LONGEST_PAUSE = 1.0
_DOING = {"retry": "retrying", "cancel": "cancelling", "run": "making ready", "delete": "deleting", "move": "moving"}

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The operation; 'stepwell bulk' lists them.", show_default=False)
]


@group.callback(invoke_without_command=True)
def bulk(
    context: typer.Context,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Only older ones than this: the last of the previous page.", show_default=False
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="List at most this many.", min=1, max=500)] = 100,
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """List, show, continue or stop bulk operations.

    A bulk operation changes all jobs that match a filter: 'stepwell jobs retry --all', for one. It is stored, and the
    workers work it off, whatever becomes of the command that started it. Operations are kept for 30 days.
    """
    if context.invoked_subcommand is not None:
        return
    last = None if before is None else parse.bulk_id(before)
    with open_database(database) as opened:
        [found] = opened.fetch(queries.bulk.bulks(limit=limit, before=last))
    if json:
        dump([_record(each) for each in found.bulks])
        return
    table(
        found.bulks,
        [
            Column("id", lambda each: each.id),
            Column("act", lambda each: each.act),
            Column("state", _state),
            Column("done", lambda each: each.done, right=True),
            Column("skipped", lambda each: each.skipped, right=True),
            Column("failed", lambda each: each.failed, right=True),
            Column("expected", lambda each: _expected(each), right=True),
            Column("started", lambda each: local_time(each.started_at)),
            Column("by", lambda each: each.asked_by, cut=True),
            Column("filter", lambda each: compact(_filter(each)), cut=True),
        ],
        empty="there are no bulk operations" if last is None else "there are no older ones",
    )
    if found.next is not None:
        say(f"there are more: add --before {found.next}")


@group.command()
def show(id: IdArgument, json: JsonOption = False, database: DatabaseOption = None) -> None:  # noqa: A002
    """Show a bulk operation, and how far it has come."""
    with open_database(database) as opened:
        found, workers = _read(opened, parse.bulk_id(id))
    if json:
        dump(_record(found))
        return
    known = [
        ("id", found.id),
        ("act", found.act),
        ("state", _state(found)),
        ("filter", compact(_filter(found))),
        ("options", compact(found.options) if found.options else None),
        ("expected", _expected(found) or None),
        ("done", found.done),
        ("skipped", found.skipped),
        ("failed", found.failed),
        ("last error", found.error),
        ("looked at", found.looked),
        ("asked by", found.asked_by),
        ("started at", local_time(found.started_at)),
        ("finished at", local_time(found.finished_at) if found.finished_at else None),
        ("next", f"start a worker, or run 'stepwell bulk continue {found.id}'" if _is_left(found, workers) else None),
    ]
    fields((name, value) for name, value in known if value is not None)


@group.command("continue")
def continue_(id: IdArgument, database: DatabaseOption = None) -> None:  # noqa: A002
    """Work off a bulk operation here, until it has ended.

    Workers do that by themselves. This is for a database without workers, or to watch the progress.
    """
    with open_database(database) as opened:
        found, _ = _read(opened, parse.bulk_id(id))
        if found.state != "running":
            raise StepwellError(f"bulk operation {found.id} is {found.state}: it cannot be continued")
        ended = work_off(opened, found)
    say(f"{ended.state}: {counted(ended.done, 'job')} changed, {ended.skipped} skipped, {ended.failed} failed")


@group.command()
def stop(id: IdArgument, database: DatabaseOption = None) -> None:  # noqa: A002
    """Stop a bulk operation. The jobs that it has changed stay changed."""
    bulk_id = parse.bulk_id(id)
    with open_database(database) as opened:
        [stopped] = opened.fetch(queries.bulk.stop_bulk(bulk_id))
        found, _ = _read(opened, bulk_id)
    if not stopped:
        raise StepwellError(f"bulk operation {bulk_id} is {found.state}: there is nothing to stop")
    say(f"stopped: {counted(found.done, 'job')} {'was' if found.done == 1 else 'were'} changed before")


def work_off(database: Database, found: Bulk) -> Bulk:
    """Work off an operation until it has ended, together with the workers, and show how far it is."""
    most = None if found.expected is None or found.expected > MOST_COUNTED else found.expected
    workers: int | None = None
    try:
        with progress(_DOING[found.act], most) as shown:
            while found.state == "running":
                [chunk] = database.fetch(queries.bulk.chunk(found.id))
                found, workers = _read(database, found.id)
                shown.update(found.done + found.skipped + found.failed)
                if found.state == "running":
                    time.sleep(min(max(chunk.next_in or 0.0, _SHORTEST_PAUSE), _LONGEST_PAUSE))
    except BaseException:
        # What was done is committed, and the rest goes on as soon as there is a worker.
        unknown, none = "workers go on, if any is alive", "no worker is alive, so the rest waits for one"
        rest = unknown if workers is None else "the workers go on" if workers else none
        complain(
            f"interrupted after {counted(found.done, 'job')}: {rest}. 'stepwell bulk stop {found.id}' stops the "
            f"operation, 'stepwell bulk continue {found.id}' goes on here"
        )
        raise
    return found


def find(database: Database, bulk_id: str) -> Bulk:
    return _read(database, bulk_id)[0]


def _read(database: Database, bulk_id: str) -> tuple[Bulk, int]:
    [found] = database.fetch(queries.bulk.bulks(bulk_id))
    if not found.bulks:
        _refuse(bulk_id)
    return found.bulks[0], found.workers


def _refuse(bulk_id: str) -> NoReturn:
    raise StepwellError(f"there is no bulk operation {bulk_id}: 'stepwell bulk' lists them")


def _state(found: Bulk) -> str:
    if found.idle is not None and found.idle > 15:
        return f"running, but idle for {describe(round(found.idle))}"
    return found.state


def _is_left(found: Bulk, workers: int) -> bool:
    """Whether an operation runs and nobody works on it."""
    return found.idle is not None and (not workers or found.idle > 15)


def _expected(found: Bulk) -> str:
    if found.expected is None:
        return ""
    return f"{MOST_COUNTED}+" if found.expected > MOST_COUNTED else str(found.expected)


def _record(found: Bulk) -> dict[str, Any]:
    return {**record(found), "filter": _filter(found)}


def _filter(found: Bulk) -> dict[str, Any]:
    return shown_filter(found.filter, hidden_fields())
