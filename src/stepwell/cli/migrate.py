"""`stepwell migrate`: bring the schema up to date."""

from __future__ import annotations

from typing import Annotated, Any

import psycopg
import typer

from stepwell.cli.output import say
from stepwell.cli.session import DatabaseOption, session
from stepwell.cli.usage import Usage
from stepwell.errors import DatabaseError
from stepwell.postgres import migrate as schema
from stepwell.postgres import rights


def migrate(
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL instead; needs no database.")] = False,
    start: Annotated[
        int | None,
        typer.Option("--from", metavar="N", help="With --sql: leave out what a schema at version N has.", min=0),
    ] = None,
    database: DatabaseOption = None,
) -> None:
    """Bring the schema up to date. Safe to run twice, and from two places at once."""
    if sql:
        if start is not None and start > schema.newest():
            raise Usage(f"--from is {start}: this stepwell knows versions up to {schema.newest()}")
        # Not cleaned: it is ours, and must reach Postgres as it is.
        typer.echo(schema.script(start or 0), nl=False)
        return
    if start is not None:
        raise Usage('--from goes with --sql: without it "stepwell migrate" finds the version in the database')
    with session(database, any_schema=True, create=True) as connection:
        before = _granted(connection)
        applied = schema.migrate(connection)
        for name in applied:
            say(f"applied {name}")
        version = schema.current(connection)
        if version > schema.newest():
            say(
                f"schema is at {version}, newer than {schema.newest()}, which this stepwell was written for, and works "
                "with it: nothing to do"
            )
        elif not applied:
            say(f"schema is at {version}, nothing to do")
        else:
            after = _granted(connection)
            for role, kind in after:
                say(f"role {role} is {kind}, as before")
            for role, kind in before:
                if (role, kind) not in after:
                    say(
                        f"role {role} was {kind}, and is gone or another role now: if it is to have these rights, "
                        f'"stepwell grant {role} --as {kind}"'
                    )


def _granted(connection: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    try:
        return [(each.role, each.kind) for each in rights.grants(connection)]
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, DatabaseError):
        return []  # from before grants were recorded
