"""Run queries on one connection, and decide whether a failed query may run again."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, TypeVar

import psycopg
from psycopg.rows import args_row

from stepwell.postgres.acting import record_of, to_record
from stepwell.postgres.connection import (
    AnyConnection,
    AsyncConnection,
    Deadline,
    SyncConnection,
    apipeline,
    became_read_only,
    in_pipeline,
    pipeline,
)
from stepwell.postgres.errors import Unanswered, is_lost, is_permanent, is_read_only_error, is_rolled_back
from stepwell.postgres.queries import Query

Row = TypeVar("Row")


def fetch(connection: psycopg.Connection[Any], query: Query[Row]) -> list[Row]:
    """Run a query. An act of a person is recorded in the same transaction."""
    if query.act is not None and (actor := to_record(query)) is not None:
        with connection.transaction():
            rows = _fetch(connection, query)
            _fetch(connection, record_of(actor, query.act, rows))
            return rows
    return _fetch(connection, query)


def _fetch(connection: psycopg.Connection[Any], query: Query[Row]) -> list[Row]:
    with connection.cursor(row_factory=args_row(query.row)) as cursor:
        return cursor.execute(query.text, query.params).fetchall()


async def afetch(connection: psycopg.AsyncConnection[Any], query: Query[Row]) -> list[Row]:
    if query.act is not None and (actor := to_record(query)) is not None:
        async with connection.transaction():
            rows = await _afetch(connection, query)
            await _afetch(connection, record_of(actor, query.act, rows))
            return rows
    return await _afetch(connection, query)


async def _afetch(connection: psycopg.AsyncConnection[Any], query: Query[Row]) -> list[Row]:
    async with connection.cursor(row_factory=args_row(query.row)) as cursor:
        await cursor.execute(query.text, query.params)
        return await cursor.fetchall()


def fetch_each(connection: psycopg.Connection[Any], queries: Iterable[Query[Row]]) -> list[Row]:
    """Run queries in one transaction and one pipeline: Postgres works on one while `queries` yields the next."""
    try:
        with pipeline(connection), connection.transaction():
            sent = [(query.row, connection.execute(query.text, query.params)) for query in queries]
            return [row(*columns) for row, cursor in sent for columns in cursor]
    except TypeError as error:
        raise _unless_lost(connection, error) from error
    finally:
        if in_pipeline(connection):
            connection.close()


async def afetch_each(connection: psycopg.AsyncConnection[Any], queries: Iterable[Query[Row]]) -> list[Row]:
    try:
        async with apipeline(connection), connection.transaction():
            sent = [(query.row, await connection.execute(query.text, query.params)) for query in queries]
            return [row(*columns) for row, cursor in sent async for columns in cursor]
    except TypeError as error:
        raise _unless_lost(connection, error) from error
    finally:
        if in_pipeline(connection):
            await connection.close()


def _unless_lost(connection: AnyConnection, error: TypeError) -> Exception:
    """psycopg's pipeline may raise TypeError if the connection is lost at that moment: return the loss instead."""
    return psycopg.OperationalError(f"the connection was lost ({error})") if connection.closed else error


def pause_or_raise(error: psycopg.Error, pause: float | None, deadline: Deadline, *, repeatable: bool) -> float:
    """Return the seconds before the next try; raise the error if there must be none."""
    if pause is None or deadline.left == 0.0 or not _may_retry(error, repeatable=repeatable):
        raise error
    return pause * random.uniform(0.5, 1)  # noqa: S311


def _may_retry(error: psycopg.Error, *, repeatable: bool) -> bool:
    # A caller with a lock_timeout does not want to wait that long several times, nor for a silent server.
    if isinstance(error, psycopg.errors.LockNotAvailable | Unanswered):
        return False
    if is_rolled_back(error) or is_read_only_error(error):
        return True
    return repeatable and is_lost(error) and not is_permanent(error)


def refuse_stale_answer(connection: SyncConnection | AsyncConnection, query: Query[Any]) -> None:
    """Refuse the answer of a server that has handed over to another: it does not see what happens there."""
    if query.repeatable and became_read_only(connection):
        raise psycopg.errors.ReadOnlySqlTransaction("the server has handed over to another")
