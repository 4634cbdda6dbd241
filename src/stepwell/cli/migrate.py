"""`stepwell migrate`: create or upgrade the schema."""

from __future__ import annotations

from typing import Annotated, Any

import psycopg
import typer

from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.output import say
from stepwell.cli.parse import UsageError
from stepwell.errors import DatabaseError
from stepwell.postgres import migrate as schema
from stepwell.postgres import rights


def migrate(
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL instead of running it. Needs no database.")] = False,
    start: Annotated[
        int | None,
        typer.Option("--from", metavar="N", help="With --sql: leave out the migrations up to version N.", min=0),
    ] = None,
    database: DatabaseOption = None,
) -> None:
    """Create the schema, or upgrade it to this version.

    It is safe to run this repeatedly, and from several places at once.
    """
    if sql:
        if start is not None and start > schema.newest():
            raise UsageError(f"--from is {start}: this stepwell knows versions up to {schema.newest()}")
        # Not through say(), which escapes characters: Postgres must get the script unchanged.
        typer.echo(schema.script(start or 0), nl=False)
        return
    if start is not None:
        raise UsageError('--from needs --sql: without it, "stepwell migrate" reads the version from the database')
    with connect(database, any_schema=True, create=True) as connection:
        before = _granted(connection)
        applied = schema.migrate(connection)
        for name in applied:
            say(f"applied {name}")
        version = schema.current(connection)
        if version > schema.newest():
            say(
                f"schema is at {version}, newer than the {schema.newest()} of this stepwell but compatible with it: "
                "nothing to do"
            )
        elif not applied:
            say(f"schema is at {version}, nothing to do")
        else:
            after = _granted(connection)
            for role, kind in after:
                say(f"role {role} keeps its rights as {kind}")
            for role, kind in before:
                if (role, kind) not in after:
                    say(
                        f"role {role}, which was {kind}, was dropped or replaced by another of that name: to grant "
                        f'these rights again, "stepwell grant {role} --as {kind}"'
                    )


def _granted(connection: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    try:
        return [(each.role, each.kind) for each in rights.grants(connection)]
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, DatabaseError):
        return []  # the schema is from before grants were recorded
