"""`stepwell failures`: groups of failures, and their states."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, cast
from uuid import UUID

import psycopg
import typer

from stepwell.cli import parse
from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, ago, dump, record, say, table
from stepwell.jobs.app_failures import MOST, STATES, FailureOrder
from stepwell.jobs.filter import check_failure, check_text
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.values.bounds import check_choice
from stepwell.values.failure_info import FailureInfo, FailureState

group = typer.Typer(rich_markup_mode=None)

IdsArgument = Annotated[
    list[str], typer.Argument(metavar="ID", help="The ids; 'stepwell failures' lists them.", show_default=False)
]


@group.callback(invoke_without_command=True)
def failures(
    context: typer.Context,
    state: Annotated[
        str, typer.Option("--state", "-s", metavar="STATE", help="open, resolved, ignored, or all.")
    ] = "open",
    task: Annotated[str | None, typer.Option("--task", "-t", metavar="NAME", help="Only of this task.")] = None,
    sort: Annotated[str, typer.Option(metavar="ORDER", help="last: the last seen first; or count.")] = "last",
    limit: Annotated[int, typer.Option("--limit", "-n", help="List at most this many.", min=1, max=MOST)] = 50,
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """List failures in groups, or set the state of a group.

    The failed attempts of a task are one group if they have the same type of error, raised in the same function of your
    code. A resolved group is opened again by its next failure, an ignored one is not. 'stepwell jobs list --failure ID'
    lists the jobs of a group, and 'stepwell jobs retry --failure ID' runs those that have failed again.
    """
    if context.invoked_subcommand is not None:
        return
    with parse.usage_errors():
        wanted = None if state == "all" else cast("FailureState", check_choice(state, "--state", STATES))
        order = cast("FailureOrder", check_choice(sort, "--sort", ("last", "count")))
        check_text(task, "--task")
    with connect(database) as connection:
        found = fetch(connection, queries.failures.list_failures(wanted, task, order, limit))
        now = fetch(connection, queries.reads.clock())[0]
    if json:
        dump([record(each) for each in found])
        return
    _print(found, now, empty="nothing has failed" if wanted is None else f"no failure is {wanted}")


@group.command()
def resolve(ids: IdsArgument, database: DatabaseOption = None) -> None:
    """Mark failures as resolved, until they happen again."""
    _set(ids, "resolved", database)


@group.command()
def ignore(ids: IdsArgument, database: DatabaseOption = None) -> None:
    """Ignore failures, also when they happen again."""
    _set(ids, "ignored", database)


@group.command()
def reopen(ids: IdsArgument, database: DatabaseOption = None) -> None:
    """Open failures again that were resolved or ignored."""
    _set(ids, "open", database)


def _set(typed: list[str], state: FailureState, database: str | None) -> None:
    with parse.usage_errors():
        ids = list(dict.fromkeys(check_failure(one, "ID") for one in typed))
    with connect(database) as connection:
        changed = set(fetch(connection, queries.failures.set_failures(ids, state))[0])
        known = {one for one in ids if one in changed or _exists(connection, one)}
    for one in ids:
        said = f"is {state}" if one in changed else f"was {state} already" if one in known else "is not known"
        say(f"{one} {said}")
    if len(known) < len(ids):
        raise typer.Exit(1)


def _exists(connection: psycopg.Connection[Any], failure: UUID) -> bool:
    return bool(fetch(connection, queries.failures.list_failures(None, None, "last", 1, failure)))


def _print(found: list[FailureInfo], now: datetime, *, empty: str) -> None:
    table(
        found,
        [
            Column("id", lambda each: each.id),
            Column("state", lambda each: f"{each.state}{' again' if each.state == 'open' and each.reopened else ''}"),
            Column("count", lambda each: each.count, right=True),
            Column("last", lambda each: ago(each.last_at, now)),
            Column("first", lambda each: ago(each.first_at, now)),
            Column("task", lambda each: each.task, cut=True),
            Column("type", lambda each: each.type, cut=True),
            Column("in", lambda each: each.frame, cut=True),
            Column("message", lambda each: each.message.partition("\n")[0], cut=True),
        ],
        empty=empty,
    )
