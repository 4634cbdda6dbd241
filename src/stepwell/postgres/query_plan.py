"""Several queries, each made from the answers to earlier ones: written once, run sync or async.

A plan is a generator that yields queries and receives their rows. If a query fails with a `StepwellError`, the error is
raised inside the plan.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from stepwell.errors import StepwellError
from stepwell.postgres.callers.on_connection import afetch_on, fetch_on
from stepwell.postgres.database_type import Database
from stepwell.postgres.queries import Query
from stepwell.postgres.threads import refuse_in_event_loop

T = TypeVar("T")
Row = TypeVar("Row")

QueryPlan = Generator[Query[Any], list[Any], T]


def rows_of(query: Query[Row]) -> QueryPlan[list[Row]]:
    """A plan of one query."""
    return (yield query)


def run_call(name: str, plan: QueryPlan[T], database: Database, connection: object | None = None) -> T:
    """Run the plan of a blocking call of this name, whose async twin has an "a" before its name. Raises `ConfigError`
    in an event loop, which the call would block, unless it is the caller's own connection that blocks it."""
    if connection is None:
        refuse_in_event_loop(name, f"a{name}")
    return run(plan, database, connection)


def run(plan: QueryPlan[T], database: Database, connection: object | None = None, *, within: float | None = None) -> T:
    """Run a plan on the caller's connection, in its current transaction, or else on pooled connections. `within` is the
    limit in seconds for each query on a pooled connection, if not `call_timeout`."""
    try:
        query = next(plan)
        while True:
            try:
                rows = database.fetch(query, within) if connection is None else fetch_on(database, connection, query)
            except StepwellError as error:
                query = plan.throw(error)
            else:
                query = plan.send(rows)
    except StopIteration as end:
        return end.value


async def arun(
    plan: QueryPlan[T], database: Database, connection: object | None = None, *, within: float | None = None
) -> T:
    try:
        query = next(plan)
        while True:
            try:
                rows = (
                    await database.afetch(query, within)
                    if connection is None
                    else await afetch_on(database, connection, query)
                )
            except StepwellError as error:
                query = plan.throw(error)
            else:
                query = plan.send(rows)
    except StopIteration as end:
        return end.value
