"""Run a query on a connection of the caller's."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import psycopg

from stepwell.errors import StepwellError
from stepwell.postgres.acting import record_of, to_record
from stepwell.postgres.callers.caller import AsyncCaller, Caller
from stepwell.postgres.callers.dispatch import async_caller_of, caller_of
from stepwell.postgres.callers.same_database import arefuse_elsewhere, refuse_elsewhere
from stepwell.postgres.database import Database
from stepwell.postgres.errors import is_permanent, stepwell_error
from stepwell.postgres.hints import aexplain, explain
from stepwell.postgres.queries import Query

Row = TypeVar("Row")


def fetch_on(database: Database, connection: object, query: Query[Row]) -> list[Row]:
    """Run a query in the caller's transaction. `database` is the app's, which the connection must be to. An error that
    the caller has to handle in any case, such as a deadlock, is raised as the driver raised it."""
    database.check_use()
    caller = caller_of(connection)
    with explaining(caller, lambda: _dsn(connection)):
        refuse_elsewhere(database, caller)
        return run_recorded(caller, query)


def run_recorded(caller: Caller, query: Query[Row]) -> list[Row]:
    """Run a query, and record it if it is an act of a person: a transaction is open that has both."""
    rows = caller.run(query)
    if query.act is not None and (actor := to_record(query)) is not None:
        caller.run(record_of(actor, query.act, rows))
    return rows


@contextmanager
def explaining(caller: Caller, dsn: Callable[[], str | None]) -> Generator[None]:
    """Raise errors that have a hint of ours with it. Others stay the driver's."""
    try:
        yield
    except StepwellError:
        raise
    except Exception as error:
        if (same := _with_a_hint(caller, error)) is not None:
            raise explain(same, dsn()) from error
        raise


async def afetch_on(database: Database, connection: object, query: Query[Row]) -> list[Row]:
    database.check_use()
    caller = async_caller_of(connection)
    try:
        await arefuse_elsewhere(database, caller)
        rows = await caller.run(query)
        if query.act is not None and (actor := to_record(query)) is not None:
            await caller.run(record_of(actor, query.act, rows))
    except StepwellError:
        raise
    except Exception as error:
        if (same := _with_a_hint(caller, error)) is not None:
            raise await aexplain(same, _dsn(connection)) from error
        raise
    return rows


def _with_a_hint(caller: Caller | AsyncCaller, error: Exception) -> psycopg.Error | None:
    """Return the error as psycopg's if it is re-raised with a hint: a missing schema or right, or a refusal of
    Stepwell's own functions."""
    same = caller.as_psycopg(error)
    return same if same is not None and (is_permanent(same) or stepwell_error(same) is not None) else None


def _dsn(connection: object) -> str | None:
    return connection.info.dsn if isinstance(connection, psycopg.Connection | psycopg.AsyncConnection) else None
