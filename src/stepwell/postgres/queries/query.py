"""A query: its text, its parameters, and how a row becomes a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, LiteralString, TypeVar, cast
from uuid import UUID

import msgspec

Row = TypeVar("Row")


def one_column(value: Any) -> Any:
    return value


def as_tuple(*columns: Any) -> tuple[Any, ...]:
    return columns


def changed(rows: list[Any]) -> int:
    """How many things an act has changed, by the rows that its query returned: their number or, of a single row, the
    length of a list, a number, or whether it is true."""
    if len(rows) != 1:
        return len(rows)
    match rows[0]:
        case None:
            return 0
        case list():
            return len(cast("list[Any]", rows[0]))
        case int():
            return int(rows[0])
        case _:
            return 1


def once(_: list[Any]) -> int:
    return 1


class Act(msgspec.Struct, frozen=True):
    """What a query does for a person: it is recorded if `postgres.acting` names one."""

    name: str
    target: str
    count: Callable[[list[Any]], int] = changed
    bulk: UUID | Callable[[list[Any]], UUID] | None = None
    """Shared by the queries of one change of many jobs, which are recorded as one act; or the rows tell it."""


class Query(msgspec.Struct, Generic[Row], frozen=True):
    """One statement. `row` gets the columns of each row and returns the value."""

    text: LiteralString
    params: Sequence[Any] = ()
    row: Callable[..., Row] = one_column
    repeatable: bool = False
    """Whether it may be sent again after a lost connection, when its effect is unknown: because it only reads, or is
    idempotent."""
    act: Act | None = None
    """What it does for a person; None: it only reads, or is called by programs alone."""


def repeatable_query(
    text: LiteralString, params: Sequence[Any] = (), row: Callable[..., Row] = one_column, *, act: Act | None = None
) -> Query[Row]:
    return Query(text, params, row, repeatable=True, act=act)


def some_jobs(ids: Sequence[str]) -> str:
    """The target of an act on jobs that are named by their ids."""
    if len(ids) == 1:
        return f"job {ids[0]}"
    return f"{len(ids)} jobs: {', '.join(ids[:20])}{', ...' if len(ids) > 20 else ''}"


WITHIN: LiteralString = " where set_config('lock_timeout', %s, true) is not null"
"""A lock timeout, for the end of a `select` of a function without a `from`.

Postgres evaluates such a condition before it calls the function. The setting ends with the statement's transaction, so
it works through any pooler. In a handler's transaction the same function is called without it, and waits."""


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms"
