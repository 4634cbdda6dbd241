"""Django's connections, by their alias in DATABASES or as the object itself: `using(connection="default")`.

Queries go through Django's own cursor. So they are part of its `atomic` blocks and savepoints, and its instrumentation
sees them. In async code they run in the thread in which Django's ORM runs its own.
"""
# pyright: basic

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import psycopg
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone
from django.utils.connection import ConnectionDoesNotExist, ConnectionProxy

from stepwell.errors import ConfigError
from stepwell.postgres.callers.caller import AsyncCaller, Caller
from stepwell.postgres.callers.dispatch import GIVE
from stepwell.postgres.callers.parameters import as_texts
from stepwell.postgres.queries import Query

Row = TypeVar("Row")


def caller(connection: object) -> Caller | None:
    return _Caller(connection) if _is_connection(connection) else None


def async_caller(connection: object) -> AsyncCaller | None:
    return _AsyncCaller(connection) if _is_connection(connection) else None


def instead(connection: object) -> str | None:  # noqa: ARG001
    return 'give an alias of DATABASES, as in connection="default", or django.db.connection'


class _Caller:
    def __init__(self, given: Any) -> None:
        self._given = given

    def open(self) -> object:
        connection = _resolve(self._given)
        if not connection.in_atomic_block and connection.get_autocommit():
            raise ConfigError(
                f"connection={connection.alias!r} is in autocommit, so there is no transaction to join: begin one, "
                "'with transaction.atomic()', or leave out connection="
            )
        if connection.in_atomic_block and connection.closed_in_transaction:
            raise ConfigError(f"connection={connection.alias!r} is closed: its atomic block can only be left")
        connection.ensure_connection()
        return connection.connection

    def run(self, query: Query[Row]) -> list[Row]:
        return run(_resolve(self._given), query)

    def as_psycopg(self, error: Exception) -> psycopg.Error | None:
        return as_psycopg(error)


class _AsyncCaller:
    """The same in the thread of Django's ORM. An alias and `django.db.connection` mean the connection of that thread,
    which is the one whose transaction a function called through `sync_to_async` began."""

    def __init__(self, given: Any) -> None:
        self._caller = _Caller(given)

    async def open(self) -> object:
        return await sync_to_async(self._caller.open)()

    async def run(self, query: Query[Row]) -> list[Row]:
        return await sync_to_async(self._caller.run)(query)

    def as_psycopg(self, error: Exception) -> psycopg.Error | None:
        return as_psycopg(error)


def run(connection: Any, query: Query[Row]) -> list[Row]:
    """Run a query on Django's cursor. Errors are Django's."""
    with connection.cursor() as cursor:
        cursor.execute(query.text, as_texts(query.params))
        return [query.row(*map(_aware, columns)) for columns in cursor.fetchall()]


def as_psycopg(error: BaseException) -> psycopg.Error | None:
    """Return the error of psycopg that an error of Django stands for; None: it is not from the database."""
    if isinstance(error, psycopg.Error):
        return error
    # Django raises an error of its own from that of psycopg, which it always uses where that is installed.
    cause = error.__cause__ if isinstance(error, Error) else None
    return cause if isinstance(cause, psycopg.Error) else None


def _is_connection(given: object) -> bool:
    return isinstance(given, str | BaseDatabaseWrapper | ConnectionProxy)


def _resolve(given: Any) -> Any:
    """Return the connection of this thread. Raises `ConfigError` if it cannot be used."""
    try:
        alias = given if isinstance(given, str) else given.alias
        own: Any = connections[alias]
    except ConnectionDoesNotExist:
        known = ", ".join(map(repr, connections.settings))
        raise ConfigError(
            f"connection={given!r}: DATABASES of Django has no such alias, only {known}; {GIVE}"
        ) from None
    except ImproperlyConfigured:
        raise ConfigError(
            f"connection={given!r} would be an alias of Django's DATABASES, and Django is not configured here: {GIVE}"
        ) from None
    if isinstance(given, BaseDatabaseWrapper) and given is not own:
        raise ConfigError(
            f"connection= is Django's {alias!r} of another thread, which only that thread may use: give its alias, "
            f"connection={alias!r}"
        )
    if own.vendor != "postgresql":
        raise ConfigError(
            f"connection={alias!r} is to a database of {own.vendor}: jobs are kept in Postgres, so give an alias of one"
        )
    return own


def _aware(value: Any) -> Any:
    """Without USE_TZ, Django reads times of a time zone as local times without one."""
    return timezone.make_aware(value) if isinstance(value, datetime) and timezone.is_naive(value) else value
