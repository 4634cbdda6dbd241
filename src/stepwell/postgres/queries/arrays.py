"""Arrays for Postgres, written out as text: psycopg takes many times as long for a list.

The statement that such a parameter stands in must cast it, as in `%s::text[]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any


def bare(values: Iterable[Any]) -> str:
    """An array of elements that need no quotes: uuids, numbers, names of states; or None."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def texts(values: Iterable[str | None]) -> str:
    """An array of texts, or None."""
    return "{" + ",".join(["NULL" if value is None else _quoted(value) for value in values]) + "}"


def times(values: Iterable[datetime | None]) -> str:
    """An array of times with a zone, or None."""
    return bare(None if value is None else value.isoformat() for value in values)


def shared(values: list[Any], write: Callable[[Iterable[Any]], str] = bare) -> str | None:
    """An option of a batch: None if nobody has it, one element if it is the same for all, else all of them."""
    first = values[0]
    if values.count(first) == len(values):
        return None if first is None else write([first])
    return write(values)


def _quoted(text: str) -> str:
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if '"' in text:
        text = text.replace('"', '\\"')
    return f'"{text}"'
