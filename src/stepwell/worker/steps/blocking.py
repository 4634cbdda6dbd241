"""Database access for coroutines that run on the event loop or, `blocking`, in a thread without suspending."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeVar

import psycopg

from stepwell.durable.backend import Connection
from stepwell.postgres.database import Database
from stepwell.postgres.fetch import afetch, fetch
from stepwell.postgres.queries import Query
from stepwell.worker.write_observer import about_to_write

Row = TypeVar("Row")


@asynccontextmanager
async def open_transaction(database: Database, *, blocking: bool) -> AsyncGenerator[Connection]:
    """A transaction that commits when its block ends: on a `Connection` if `blocking`, else on an `AsyncConnection`."""
    if blocking:
        with database.connection() as connection:
            with connection.transaction():
                yield connection
                committed = about_to_write("transaction", "commit")
            committed(())
    else:
        async with database.aconnection() as connection:
            async with connection.transaction():
                yield connection
                committed = about_to_write("transaction", "commit")
            committed(())


async def run_on(connection: Connection, query: Query[Row]) -> list[Row]:
    if isinstance(connection, psycopg.AsyncConnection):
        return await afetch(connection, query)
    return fetch(connection, query)
