"""Several queries, each made from the answers to those before: written once, run sync or async.

A plan is a generator that yields queries and is sent their rows, or has the error that Stepwell makes of one thrown in.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from stepwell.errors import StepwellError
from stepwell.postgres.callers_connection import afetch_on, fetch_on
from stepwell.postgres.database import Database
from stepwell.postgres.queries import Query

T = TypeVar("T")

Plan = Generator[Query[Any], list[Any], T]


def run(plan: Plan[T], database: Database, connection: object | None = None) -> T:
    """Run a plan on the caller's connection, in whatever transaction it is in, or else on pooled ones."""
    try:
        query = next(plan)
        while True:
            try:
                rows = database.fetch(query) if connection is None else fetch_on(connection, query)
            except StepwellError as error:
                query = plan.throw(error)
            else:
                query = plan.send(rows)
    except StopIteration as end:
        return end.value


async def arun(plan: Plan[T], database: Database, connection: object | None = None) -> T:
    """The same for async code."""
    try:
        query = next(plan)
        while True:
            try:
                rows = await database.afetch(query) if connection is None else await afetch_on(connection, query)
            except StepwellError as error:
                query = plan.throw(error)
            else:
                query = plan.send(rows)
    except StopIteration as end:
        return end.value
