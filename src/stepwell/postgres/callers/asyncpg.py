"""asyncpg's connections, also those of its pools.

asyncpg commits every statement by itself unless a transaction was begun, so one must have been.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar, cast

import psycopg

from stepwell.errors import ConfigError
from stepwell.postgres.callers.caller import AsyncCaller, Caller
from stepwell.postgres.callers.failure import lost, server_error
from stepwell.postgres.callers.parameters import as_texts, numbered
from stepwell.postgres.queries import Query

Row = TypeVar("Row")


def caller(connection: object) -> Caller | None:  # noqa: ARG001 asyncpg has no blocking connections
    return None


def async_caller(connection: object) -> AsyncCaller | None:
    return _AsyncCaller(connection) if {"Connection", "PoolConnectionProxy"} & _names(connection) else None


def instead(connection: object) -> str | None:
    if "Pool" in _names(connection):
        return "give a connection of it, as in 'async with pool.acquire() as connection, connection.transaction()'"
    return None


class _AsyncCaller:
    def __init__(self, connection: object) -> None:
        self._connection = cast("Any", connection)

    async def open(self) -> object:
        # Each acquire makes a new proxy around the same connection. It is None if the connection was released.
        connection = getattr(self._connection, "_con", self._connection)
        if connection is None or connection.is_closed():
            raise ConfigError(
                "connection= is closed, or was released to its pool: give one that is open, inside its transaction"
            )
        refuse_other_loop(connection)
        if not connection.is_in_transaction():
            raise ConfigError(
                "connection= is not in a transaction, and asyncpg commits each statement by itself then: begin one, "
                "'async with connection.transaction()', or leave out connection="
            )
        return connection

    async def run(self, query: Query[Row]) -> list[Row]:
        rows = await self._connection.fetch(numbered(query.text), *as_texts(query.params))
        return [query.row(*columns) for columns in rows]

    def as_psycopg(self, error: Exception) -> psycopg.Error | None:
        return as_psycopg(error)


def as_psycopg(error: BaseException) -> psycopg.Error | None:
    sqlstate = getattr(error, "sqlstate", None)
    if isinstance(sqlstate, str):
        return server_error(error, sqlstate, str(getattr(error, "message", error)), error)
    return lost(error) if "InterfaceError" in _names(error) else None


def refuse_other_loop(connection: object) -> None:
    """Raise `ConfigError` for a connection of another event loop, on which this one would wait for ever or crash."""
    loop = getattr(connection, "_loop", None)
    if loop is not None and loop is not asyncio.get_running_loop():
        raise ConfigError(
            "connection= was opened on another event loop: asyncpg's connections work only on the one that opened them"
        )


def _names(thing: object) -> set[str]:
    return {base.__name__ for base in type(thing).__mro__ if base.__module__.partition(".")[0] == "asyncpg"}
