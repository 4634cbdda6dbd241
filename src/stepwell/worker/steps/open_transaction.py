"""Open the transaction of a handler or a step: on a connection of Stepwell's, or in a session of the user's.

The coroutines run on the event loop or, `blocking`, in a thread without suspending.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus

from stepwell.durable.backend import OpenTransaction, Sessions
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.postgres.fetch import afetch, fetch
from stepwell.postgres.queries import Query
from stepwell.worker.steps.open_session import open_session
from stepwell.worker.write_observer import about_to_write

Connection: TypeAlias = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


@asynccontextmanager
async def open_transaction(
    database: Database, sessions: Sessions | None, *, blocking: bool, mark: str | None = None
) -> AsyncGenerator[OpenTransaction]:
    """A transaction that commits when its block ends: in a session that `sessions` makes, else on a `Connection` if
    `blocking`, else on an `AsyncConnection`. The `mark` lasts as long as the transaction. If it is gone later, the
    user's code has ended the transaction."""
    if sessions is not None:
        async with open_session(database, sessions, blocking=blocking, mark=mark) as opened:
            yield opened
    elif blocking:
        with database.connection() as connection:
            with connection.transaction():
                yield await _marked(connection, mark)
                committed = about_to_write("transaction", "commit")
            committed(())
    else:
        async with database.aconnection() as connection:
            async with connection.transaction():
                yield await _marked(connection, mark)
                committed = about_to_write("transaction", "commit")
            committed(())


class _OnConnection:
    def __init__(self, connection: Connection, mark: str | None) -> None:
        self.given = connection
        self.pid = connection.info.backend_pid
        self._mark = mark

    @property
    def aborted(self) -> bool:
        return self.given.info.transaction_status == TransactionStatus.INERROR

    async def ended(self) -> bool:
        if self._mark is None:
            return self.given.info.transaction_status != TransactionStatus.INTRANS
        return (await self.run(queries.outcomes.transaction_mark()))[0] != self._mark

    async def run(self, query: Query[Any]) -> list[Any]:
        if isinstance(self.given, psycopg.AsyncConnection):
            return await afetch(self.given, query)
        return fetch(self.given, query)

    def leaves_in_doubt(self, error: BaseException) -> bool:
        return isinstance(error, psycopg.OperationalError | OSError)


async def _marked(connection: Connection, mark: str | None) -> OpenTransaction:
    opened = _OnConnection(connection, mark)
    if mark is not None:
        await opened.run(queries.outcomes.mark_transaction(mark))
    return opened
