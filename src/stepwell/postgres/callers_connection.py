"""Run queries in the caller's own transaction: they take effect if and only if it commits."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import psycopg

from stepwell.errors import ConfigError
from stepwell.postgres.errors import is_permanent, stepwell_error
from stepwell.postgres.fetch import afetch, fetch
from stepwell.postgres.hints import aexplain, explain
from stepwell.postgres.queries import Query

Row = TypeVar("Row")


def fetch_on(connection: object, query: Query[Row]) -> list[Row]:
    if isinstance(connection, psycopg.AsyncConnection):
        raise ConfigError(
            "connection= is an AsyncConnection: await the call that begins with 'a', or give a psycopg.Connection"
        )
    if not isinstance(connection, psycopg.Connection):
        raise _unknown(connection)
    try:
        return fetch(cast("psycopg.Connection[Any]", connection), query)
    except psycopg.Error as error:
        if _has_a_hint(error):
            raise explain(error, connection.info.dsn) from error
        raise


async def afetch_on(connection: object, query: Query[Row]) -> list[Row]:
    if isinstance(connection, psycopg.Connection):
        raise ConfigError(
            "connection= is a sync Connection: use the call without the 'a', or give a psycopg.AsyncConnection"
        )
    if not isinstance(connection, psycopg.AsyncConnection):
        raise _unknown(connection)
    try:
        return await afetch(cast("psycopg.AsyncConnection[Any]", connection), query)
    except psycopg.Error as error:
        if _has_a_hint(error):
            raise await aexplain(error, connection.info.dsn) from error
        raise


def _has_a_hint(error: psycopg.Error) -> bool:
    """Whether to re-raise the error with a hint: a missing schema or right, or a refusal of Stepwell's own functions.
    The caller handles all other errors of its transaction."""
    return is_permanent(error) or stepwell_error(error) is not None


def _unknown(connection: object) -> ConfigError:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if (within := _driver_connection(connection)) is not None:
        return ConfigError(
            f"connection= is a {kind}: give the psycopg connection in it, {within}, or with another driver "
            "call stepwell.enqueue(...) in SQL on it"
        )
    return ConfigError(
        f"connection= is a {kind}: give a psycopg.Connection or psycopg.AsyncConnection, "
        "or call stepwell.enqueue(...) in SQL on it"
    )


def _driver_connection(connection: object) -> str | None:
    """Say how to get the driver's connection from an object of SQLAlchemy; None: it is not one."""
    # By name: the user may have subclassed a session, and SQLAlchemy need not be installed.
    names = {base.__name__ for base in type(connection).__mro__ if base.__module__.startswith("sqlalchemy.")}
    if names & {"AsyncSession", "async_scoped_session"}:
        return "(await (await session.connection()).get_raw_connection()).driver_connection"
    if "AsyncConnection" in names:
        return "(await connection.get_raw_connection()).driver_connection"
    if names & {"Session", "scoped_session"}:
        return "session.connection().connection.driver_connection"
    return "connection.connection.driver_connection" if "Connection" in names else None
