"""A query: its text, its parameters, and how a row becomes a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, LiteralString, TypeVar

Row = TypeVar("Row")


def one_column(value: Any) -> Any:
    return value


def as_tuple(*columns: Any) -> tuple[Any, ...]:
    return columns


@dataclass(frozen=True, slots=True)
class Query(Generic[Row]):
    """One statement. `row` gets the columns of each row and returns the value."""

    text: LiteralString
    params: Sequence[Any] = ()
    row: Callable[..., Row] = one_column
    repeatable: bool = False
    """Whether it may be sent again after a lost connection, when its effect is unknown: because it only reads, or is
    idempotent."""


def repeatable_query(
    text: LiteralString, params: Sequence[Any] = (), row: Callable[..., Row] = one_column
) -> Query[Row]:
    return Query(text, params, row, repeatable=True)


WITHIN: LiteralString = " where set_config('lock_timeout', %s, true) is not null"
"""A lock timeout, for the end of a `select` of a function without a `from`.

Postgres evaluates such a condition before it calls the function. The setting ends with the statement's transaction, so
it works through any pooler. In a handler's transaction the same function is called without it, and waits."""


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms"
