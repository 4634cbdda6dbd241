"""`stepwell migrate`: bring the schema up to date."""

from __future__ import annotations

from typing import Annotated

import typer

from stepwell import migrate as schema
from stepwell.cli.output import say
from stepwell.cli.session import DatabaseOption, session
from stepwell.cli.usage import Usage


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
    with session(database, any_schema=True) as connection:
        applied = schema.migrate(connection)
        for name in applied:
            say(f"applied {name}")
        if not applied:
            say(f"schema is at {schema.current(connection)}, nothing to do")
