"""Text and JSON that can always be sent. SQL stores values that UTF-8 or JSON cannot express."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, cast

# The type json of Postgres takes the escape of half a character. Python joins two halves, so one that is left is alone.
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def sendable(text: str) -> str:
    """The text, with U+FFFD for each lone surrogate."""
    return LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def to_json(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """JSON that every program can read: without Infinity, NaN and lone surrogates. Raises `RecursionError` for what is
    nested too deep, and `ValueError` for an integer of too many digits."""
    # Not msgspec, which refuses integers of more than 64 bits.
    try:
        text = json.dumps(value, ensure_ascii=False, default=default, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, default=default, allow_nan=False)
    return sendable(text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {name: _finite(field) for name, field in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in cast("list[Any]", value)]
    return value


def number_of(text: str) -> float | str:
    """Read a number of JSON. One that is too large for Python stays the text that it was."""
    number = float(text)
    return number if math.isfinite(number) else text
