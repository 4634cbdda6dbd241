"""What a query is: text, parameters, and what a row becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, LiteralString, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Query(Generic[Row]):
    """One statement. `row` is called with the columns of each row."""

    text: LiteralString
    params: Sequence[Any]
    row: Callable[..., Row]
    repeatable: bool = False
    """Whether it may be sent again when the connection was lost and nobody knows how it went: it only reads, say."""


WITHIN: LiteralString = " where set_config('lock_timeout', %s, true) is not null"
"""After a `select` of a function without a `from`: no wait for any one lock may last longer than this parameter says.

Postgres evaluates such a condition before it calls the function. The setting ends with the statement's transaction, so
it goes through any pooler. In a handler's transaction the same function is called without this, and waits."""


def milliseconds(seconds: float) -> str:
    """As Postgres reads its time-outs."""
    return f"{seconds * 1000:.0f}ms"


def only(value: Any) -> Any:
    return value


def same(*columns: Any) -> tuple[Any, ...]:
    return columns
