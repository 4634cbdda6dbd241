"""Write queries for drivers other than psycopg: numbered placeholders, and parameters as text.

A query casts every parameter, and Postgres reads every type from text. So no driver needs to know how to write arrays,
times or uuids, or agree with another about it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, cast

from stepwell.postgres.queries.arrays import texts

_PLACEHOLDER = re.compile(r"%(s::|s|%)")


@lru_cache(maxsize=500)
def numbered(text: str) -> str:
    """Return a statement with `$1::text::uuid` for `%s::uuid`. The first cast declares the parameter as text: a driver
    that asks the server for types would want a uuid."""
    count = 0

    def number(found: re.Match[str]) -> str:
        nonlocal count
        if found[1] == "%":
            return "%"
        count += 1
        return f"${count}::text::" if found[1] == "s::" else f"${count}"

    return _PLACEHOLDER.sub(number, text)


def as_texts(params: Sequence[Any]) -> tuple[str | None, ...]:
    return tuple([_as_text(value) for value in params])


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return texts([_as_text(element) for element in cast("Sequence[Any]", value)])
    return str(value)
