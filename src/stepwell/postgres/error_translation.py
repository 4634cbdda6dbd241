"""Translate the errors of psycopg that a block raises to Stepwell's own, with the next act."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import psycopg

from stepwell.errors import DatabaseError, StepwellError
from stepwell.postgres.database import Database
from stepwell.postgres.hints import explain


@contextmanager
def translated(database: Database) -> Generator[None]:
    try:
        yield
    except psycopg.Error as error:
        said = error.diag.message_primary or str(error)
        if said.startswith("stepwell: "):  # one of our SQL functions refused the call
            raise DatabaseError(said.removeprefix("stepwell: ")) from error
        if isinstance(error, psycopg.DataError):
            raise StepwellError(f"Postgres refuses this value: {said}") from error
        raise explain(error, database.dsn) from error
