"""The database of a command: its option, and a connection for the length of the command."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Annotated, Any

import psycopg
import typer

from stepwell.embedded import EmbeddedPostgres
from stepwell.errors import ConfigError
from stepwell.postgres.acting import acting
from stepwell.postgres.address import ENVIRONMENT
from stepwell.postgres.database import Database
from stepwell.postgres.hints import translated
from stepwell.postgres.silent import warning_if_silent

DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database",
        "-d",
        metavar="URL",
        help='The database: a Postgres URL, or "embedded[:PATH]".  [env: STEPWELL_DATABASE_URL]',
        show_default=False,
    ),
]


def person() -> str:
    """The account that runs the command, and its machine, as acts of the command are recorded."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        # In a container, the number of an account may have no name.
        name = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{name}@{socket.gethostname()}"


@contextmanager
def connect(
    database: str | None, *, any_schema: bool = False, create: bool = False
) -> Generator[psycopg.Connection[Any]]:
    """Yield a connection in autocommit mode. The schema is checked first, unless `any_schema`. An embedded Postgres
    must exist, unless the command may `create` one: in the wrong directory it would otherwise make and read an empty
    one."""
    with open_database(database, any_schema=any_schema, create=create) as found:
        with _warning_if_silent(found):
            connection = found.connect()
        with connection:
            yield connection


@contextmanager
def open_database(database: str | None, *, any_schema: bool = False, create: bool = False) -> Generator[Database]:
    """Yield the database itself, to run plans on: it repeats a query that conflicted with another transaction."""
    if not database and not os.environ.get(ENVIRONMENT) and EmbeddedPostgres().exists:
        raise ConfigError(
            "no database is configured, but there is an embedded Postgres in ./.stepwell: to use that, add --database "
            f"embedded. To use another, give its URL there, or in the environment variable {ENVIRONMENT}"
        )
    found = Database(database, pool_size=1, create=create)
    try:
        with translated(found), acting(person(), "cli"):
            if not any_schema:
                with _warning_if_silent(found):
                    found.ensure_ready(wait=False)
            yield found
    finally:
        found.close()


def _warning_if_silent(database: Database) -> AbstractContextManager[None]:
    """An embedded Postgres has been started when its address is known, and then migrates."""
    dsn = database.dsn
    return nullcontext() if database.is_embedded else warning_if_silent(dsn)
