"""Run a query on a connection of the caller's own: `fetch`, which is loaded with the first query.

`fetch` and the errors that it knows need psycopg, which takes longer to import than all of Stepwell. A program that
defines tasks, or imports those of others, starts without it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from stepwell.postgres.database_type import Database
from stepwell.postgres.queries import Query

Row = TypeVar("Row")


def fetch_on(database: Database, connection: object, query: Query[Row]) -> list[Row]:
    """See `fetch.fetch_on`."""
    from stepwell.postgres.callers import fetch

    return fetch.fetch_on(database, connection, query)


def afetch_on(database: Database, connection: object, query: Query[Row]) -> Coroutine[Any, Any, list[Row]]:
    """See `fetch.afetch_on`."""
    from stepwell.postgres.callers import fetch

    return fetch.afetch_on(database, connection, query)
