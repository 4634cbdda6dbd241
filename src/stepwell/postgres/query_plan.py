"""Several queries, each made from the answers to earlier ones: written once, run sync or async.

A plan is a generator that yields queries and receives their rows. If a query fails with a `StepwellError`, the error is
raised inside the plan.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from stepwell.errors import StepwellError
from stepwell.postgres.callers_connection import afetch_on, fetch_on
from stepwell.postgres.database import Database
from stepwell.postgres.queries import Query

T = TypeVar("T")

QueryPlan = Generator[Query[Any], list[Any], T]


def run(plan: QueryPlan[T], database: Database, connection: object | None = None, *, within: float | None = None) -> T:
    """Run a plan on the caller's connection, in its current transaction, or else on pooled connections. `within` is the
    limit in seconds for each query on a pooled connection, if not `call_timeout`."""
    try:
        query = next(plan)
        while True:
            try:
                rows = database.fetch(query, within) if connection is None else fetch_on(connection, query)
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
                    await database.afetch(query, within) if connection is None else await afetch_on(connection, query)
                )
            except StepwellError as error:
                query = plan.throw(error)
            else:
                query = plan.send(rows)
    except StopIteration as end:
        return end.value
