"""SQLAlchemy's connections and sessions, sync and async, over psycopg, asyncpg or psycopg2.

Queries go through SQLAlchemy's own connection, never through the driver's in it: SQLAlchemy begins its transaction on
asyncpg only at its own first statement, so a statement that went past it would be committed by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

import psycopg
from sqlalchemy import Connection, CursorResult, exc
from sqlalchemy.orm import Session, scoped_session

from stepwell.errors import ConfigError
from stepwell.postgres.callers import asyncpg
from stepwell.postgres.callers.caller import AsyncCaller, Caller
from stepwell.postgres.callers.failure import lost, server_error
from stepwell.postgres.callers.parameters import as_texts, numbered
from stepwell.postgres.queries import Query

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

T = TypeVar("T")
Row = TypeVar("Row")


def caller(connection: object) -> Caller | None:
    if isinstance(connection, scoped_session):
        connection = cast("scoped_session[Any]", connection)()
    if isinstance(connection, Session | Connection):
        return _Caller(connection)
    return None


def async_caller(connection: object) -> AsyncCaller | None:
    # By name: without greenlet, which sync code does not need, the classes cannot be imported.
    if "async_scoped_session" in _names(connection):
        connection = cast("async_scoped_session[Any]", connection)()
    if {"AsyncSession", "AsyncConnection"} & _names(connection):
        return _AsyncCaller(cast("AsyncSession | AsyncConnection", connection))
    return None


def instead(connection: object) -> str | None:
    names = _names(connection)
    if names & {"Engine", "AsyncEngine"}:
        return "give a connection of it, as in 'with engine.begin() as connection', or a session"
    if names & {"sessionmaker", "async_sessionmaker"}:
        return "give a session that it makes, as in 'with Sessions.begin() as session'"
    return None


def _names(thing: object) -> set[str]:
    return {base.__name__ for base in type(thing).__mro__ if base.__module__.startswith("sqlalchemy.")}


class _Caller:
    def __init__(self, given: Session | Connection) -> None:
        self._given = given

    def open(self) -> object:
        return _open(self._given)

    def run(self, query: Query[Row]) -> list[Row]:
        return _run(self._given, query)

    def as_psycopg(self, error: Exception) -> psycopg.Error | None:
        return as_psycopg(error)


class _AsyncCaller:
    def __init__(self, given: AsyncSession | AsyncConnection) -> None:
        self._given = given

    async def open(self) -> object:
        if getattr(self._given, "closed", False):
            raise _closed()
        driver = await self._run_sync(_open)
        asyncpg.refuse_other_loop(driver)
        return driver

    async def run(self, query: Query[Row]) -> list[Row]:
        return await self._run_sync(lambda given: _run(given, query))

    def _run_sync(self, call: Callable[[Session | Connection], T]) -> Any:
        return self._given.run_sync(call)

    def as_psycopg(self, error: Exception) -> psycopg.Error | None:
        return as_psycopg(error)


def _open(given: Session | Connection) -> object:
    connection = _connection_of(given)
    if connection.closed:
        raise _closed()
    if connection.dialect.name != "postgresql":
        raise ConfigError(
            f"connection= is to a database of {connection.dialect.name}: jobs are kept in Postgres, so give a "
            "connection to that"
        )
    pooled = connection.connection
    if getattr(pooled.dbapi_connection, "autocommit", False):
        raise ConfigError(
            "connection= is in autocommit, isolation_level='AUTOCOMMIT', so there is no transaction to join: give one "
            "of an engine with another isolation level, or leave out connection="
        )
    return pooled.driver_connection


def _connection_of(given: Session | Connection) -> Connection:
    if isinstance(given, Connection):
        return given
    try:
        return given.connection()
    except exc.UnboundExecutionError as error:
        raise ConfigError(
            "connection= is a session that has no engine, or one for each class: give the connection, "
            "session.connection(bind_arguments={...})"
        ) from error


def _run(given: Session | Connection, query: Query[Row]) -> list[Row]:
    connection = _connection_of(given)
    text, params = query.text, query.params
    if connection.dialect.paramstyle.startswith("numeric"):
        text, params = numbered(text), as_texts(params)
    elif connection.dialect.driver != "psycopg":
        params = as_texts(params)
    result = connection.exec_driver_sql(text, tuple(params) or None)
    if connection.dialect.driver == "psycopg2":
        return [query.row(*columns) for columns in _with_uuids(result)]
    return [query.row(*columns) for columns in result.fetchall()]


def _with_uuids(result: CursorResult[Any]) -> Iterator[list[Any]]:
    """The rows of psycopg2, which returns uuids, and arrays of them, as text."""
    read = [_READ.get(column[1]) for column in cast("Any", result.cursor).description]
    for row in result.fetchall():
        yield [
            value if of_text is None or not isinstance(value, str) else of_text(value)
            for value, of_text in zip(row, read, strict=True)
        ]


def _uuids(text: str) -> list[UUID]:
    return [UUID(one) for one in text.strip("{}").split(",") if one]


_READ: dict[int, Callable[[str], Any]] = {2950: UUID, 2951: _uuids}
"""How the types of these oids are read from text."""


def _closed() -> ConfigError:
    return ConfigError("connection= is closed: give one that is open, inside its transaction")


def as_psycopg(error: BaseException) -> psycopg.Error | None:
    if isinstance(error, exc.TimeoutError):
        return lost(error)  # the engine's pool had no connection
    if not isinstance(error, exc.DBAPIError):
        return None
    for cause in (error.orig, None if error.orig is None else error.orig.__cause__):
        if isinstance(cause, psycopg.Error):
            return cause
        if cause is not None and type(cause).__module__.startswith("asyncpg"):
            return asyncpg.as_psycopg(cause)
        if isinstance(sqlstate := getattr(cause, "pgcode", None), str) and hasattr(cause, "diag"):
            diag = cast("Any", cause).diag
            return server_error(error, sqlstate, diag.message_primary or str(cause), diag)
    return lost(error) if isinstance(error, exc.OperationalError | exc.InterfaceError) else None
