"""`stepwell migrate`: create or upgrade the schema."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import psycopg
import typer

from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.output import say
from stepwell.cli.parse import UsageError
from stepwell.cli.progress import Progress, progress
from stepwell.errors import DatabaseError
from stepwell.postgres import migrate as schema
from stepwell.postgres import queries, rights
from stepwell.postgres.fetch import fetch

_QUIET = 2.0


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
        with progress("waiting for the schema") as shown, _watching(connection, shown) as tell:
            applied = schema.migrate(connection, tell=tell)
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


@contextmanager
def _watching(connection: psycopg.Connection[Any], shown: Progress) -> Generator[schema.Tell]:
    """Yield the function that is told of each part. To build an index of many jobs takes long: another connection reads
    how far that is."""
    ended = threading.Event()
    part = ""

    def tell(what: str, done: int, total: int | None) -> None:
        nonlocal part
        part = what
        shown.now(what)
        shown.update(done, total)

    def watch() -> None:
        with suppress(psycopg.Error), psycopg.connect(connection.info.dsn, autocommit=True, connect_timeout=5) as other:
            while not ended.wait(1):
                for build in fetch(other, queries.health.index_build(connection.info.backend_pid)):
                    share = "" if build.done is None else f", {100 * build.done:.0f}%"
                    shown.now(f"{part}: an index of {build.table}{share}")

    watcher = threading.Thread(target=_after(_QUIET, ended, watch), daemon=True)
    watcher.start()
    try:
        yield tell
    finally:
        ended.set()
        watcher.join()


def _after(seconds: float, ended: threading.Event, do: Callable[[], None]) -> Callable[[], None]:
    """Do it after so many seconds, unless it has ended by then: most migrations have."""
    return lambda: None if ended.wait(seconds) else do()


def _granted(connection: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    try:
        return [(each.role, each.kind) for each in rights.grants(connection)]
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, DatabaseError):
        return []  # the schema is from before grants were recorded
