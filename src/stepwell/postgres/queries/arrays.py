"""Write arrays for Postgres as text, because psycopg takes many times as long for a list.

The statement must cast such a parameter, as in `%s::text[]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, cast


def bare(values: Iterable[Any]) -> str:
    """Write an array of elements that need no quotes, such as uuids, numbers and names of states, or None."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def texts(values: Iterable[str | None]) -> str:
    values = list(values)
    if None not in values:
        # Mostly no element needs more than quotes around it, and one search of all is faster than one of each.
        joined = '","'.join(cast("list[str]", values))
        if "\\" not in joined and joined.count('"') == 2 * (len(values) - 1):
            return '{"' + joined + '"}'
    return "{" + ",".join(["NULL" if value is None else _quoted(value) for value in values]) + "}"


def times(values: Iterable[datetime | None]) -> str:
    return bare(None if value is None else value.isoformat() for value in values)


def shared(values: list[Any], write: Callable[[Iterable[Any]], str] = bare) -> str | None:
    """Write an option of a batch: None if no item has it, one element if it is the same for all, else all elements."""
    first = values[0]
    if values.count(first) == len(values):
        return None if first is None else write([first])
    return write(values)


def unless_none(values: list[Any]) -> str | None:
    """Write an option of a batch that differs from item to item: None if no item has it, else all elements."""
    return None if values.count(None) == len(values) else bare(values)


def _quoted(text: str) -> str:
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if '"' in text:
        text = text.replace('"', '\\"')
    return f'"{text}"'
