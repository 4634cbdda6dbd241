"""`stepwell audit`: who did what."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from stepwell.cli import parse
from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, dump, say, table
from stepwell.jobs.filter import check_text
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.values.duration import local_time


def audit(
    who: Annotated[str | None, typer.Option("--who", metavar="NAME", help="Only what this person did.")] = None,
    act: Annotated[str | None, typer.Option("--act", metavar="ACT", help="Only this act, such as retry.")] = None,
    before: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Only older ones than this: the last of the previous page.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="List at most this many.", min=1, max=500)] = 50,
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """List what people have done, newest first.

    Recorded are the acts of users of the dashboard, those of the command line, with the name of the account and the
    machine, and what a program does in 'with app.acting_as("ada")'. They are kept for a year.
    """
    with parse.usage_errors():
        check_text(who, "--who")
        check_text(act, "--act")
    with connect(database) as connection:
        found = fetch(connection, queries.audit.acts(who, act, before, limit))[0]
    if json:
        dump(found["acts"])
        return
    table(
        found["acts"],
        [
            Column("number", lambda one: one["id"], right=True),
            Column("at", lambda one: local_time(datetime.fromisoformat(one["at"]))),
            Column("who", lambda one: one["who"], cut=True),
            Column("via", lambda one: one["via"]),
            Column("act", lambda one: one["act"]),
            Column("count", lambda one: one["count"], right=True),
            Column("target", lambda one: one["target"], cut=True),
        ],
        empty="nobody has done anything yet" if who is None and act is None else "no act matches",
    )
    if found["next"] is not None:
        say(f"there are more: add --before {found['next']}")
