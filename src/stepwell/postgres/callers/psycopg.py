"""psycopg's connections."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import args_row

from stepwell.errors import ConfigError
from stepwell.postgres.callers.caller import AsyncCaller, Caller
from stepwell.postgres.connection import AnyConnection
from stepwell.postgres.queries import Query

Row = TypeVar("Row")


def caller(connection: object) -> Caller | None:
    return _Caller(cast("Any", connection)) if isinstance(connection, psycopg.Connection) else None


def async_caller(connection: object) -> AsyncCaller | None:
    return _AsyncCaller(cast("Any", connection)) if isinstance(connection, psycopg.AsyncConnection) else None


def instead(connection: object) -> str | None:
    return "give a connection of it, as in 'with pool.connection() as connection'" if _is_pool(connection) else None


class _Caller:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def open(self) -> object:
        return _checked(self._connection)

    def run(self, query: Query[Row]) -> list[Row]:
        connection = self._connection
        # A cursor of that kind takes only $1, and psycopg's usual one works on the same connection.
        own: Any = connection.cursor_factory
        kind = psycopg.Cursor[Row] if issubclass(own, psycopg.RawCursor) else own
        with kind(connection, row_factory=args_row(query.row)) as cursor:
            return cursor.execute(query.text, query.params).fetchall()

    def as_psycopg(self, error: Exception) -> psycopg.Error | None:
        return as_psycopg(error)


class _AsyncCaller:
    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def open(self) -> object:
        return _checked(self._connection)

    async def run(self, query: Query[Row]) -> list[Row]:
        connection = self._connection
        own: Any = connection.cursor_factory
        kind = psycopg.AsyncCursor[Row] if issubclass(own, psycopg.AsyncRawCursor) else own
        async with kind(connection, row_factory=args_row(query.row)) as cursor:
            await cursor.execute(query.text, query.params)
            return await cursor.fetchall()

    def as_psycopg(self, error: Exception) -> psycopg.Error | None:
        return as_psycopg(error)


def as_psycopg(error: Exception) -> psycopg.Error | None:
    return error if isinstance(error, psycopg.Error) else None


def _checked(connection: AnyConnection) -> AnyConnection:
    if connection.closed:
        raise ConfigError("connection= is closed: give one that is open, inside its transaction")
    if connection.autocommit and connection.pgconn.transaction_status == TransactionStatus.IDLE:
        raise ConfigError(
            "connection= is in autocommit and not in a transaction, so there is nothing to join: begin one, 'with "
            "connection.transaction()', or leave out connection="
        )
    return connection


def _is_pool(connection: object) -> bool:
    return any(base.__module__.startswith("psycopg_pool") for base in type(connection).__mro__)
