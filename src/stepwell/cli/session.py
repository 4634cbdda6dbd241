"""A connection for the length of one command."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any

import psycopg
import typer

from stepwell.embedded import EmbeddedPostgres
from stepwell.errors import ConfigError, DatabaseError, StepwellError
from stepwell.postgres.address import ENVIRONMENT
from stepwell.postgres.database import Database
from stepwell.postgres.hints import explain

DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database",
        "-d",
        metavar="URL",
        help='Where the jobs are: a Postgres URL, or "embedded[:PATH]".  [env: STEPWELL_DATABASE_URL]',
        show_default=False,
    ),
]


@contextmanager
def session(
    database: str | None, *, any_schema: bool = False, create: bool = False
) -> Generator[psycopg.Connection[Any]]:
    """A connection in autocommit. Unless `any_schema` will do, the schema is checked first. An embedded Postgres must
    be there, unless this may `create` one: a command in the wrong directory would find an empty one."""
    with opened(database, any_schema=any_schema, create=create) as found, found.connect() as connection:
        yield connection


@contextmanager
def opened(database: str | None, *, any_schema: bool = False, create: bool = False) -> Generator[Database]:
    """The database itself, for plans: a query that meets another transaction is run again."""
    if not database and not os.environ.get(ENVIRONMENT) and EmbeddedPostgres().exists:
        raise ConfigError(
            "no database is configured, but there is an embedded Postgres in ./.stepwell: for that, add --database "
            f"embedded. For another, name its URL there, or in the environment variable {ENVIRONMENT}"
        )
    found = Database(database, pool_size=1, create=create)
    try:
        with explained(found):
            if not any_schema:
                found.ensure_ready(wait=False)
            yield found
    finally:
        found.close()


@contextmanager
def explained(database: Database) -> Generator[None]:
    """Say what Postgres refuses in our own words, with the next act."""
    try:
        yield
    except psycopg.Error as error:
        said = error.diag.message_primary or str(error)
        if said.startswith("stepwell: "):
            raise DatabaseError(said.removeprefix("stepwell: ")) from error
        if isinstance(error, psycopg.DataError):
            raise StepwellError(f"Postgres does not take this: {said}") from error
        raise explain(error, database.dsn) from error
