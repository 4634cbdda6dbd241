"""Text and JSON that can always be sent. SQL stores values that UTF-8 or JSON cannot express."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from stepwell.values.json_copy import copied

# The type json of Postgres takes the escape of half a character. Python joins two halves, so one that is left is alone.
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_ASCII = re.compile("[^\x00-\x7f]+")


def sendable(text: str) -> str:
    """The text, with U+FFFD for each lone surrogate."""
    return LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def to_json(
    value: Any, default: Callable[[Any], Any] | None = None, *, indent: int | None = None, only_ascii: bool = False
) -> str:
    """JSON that every program can read: without Infinity and NaN, and with U+FFFD for each lone surrogate, whose escape
    many refuse, too. Raises `RecursionError` for what is nested too deep, and `ValueError` for an integer of too
    many digits."""

    # Not msgspec, which refuses integers of more than 64 bits.
    def dumped(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, default=default, allow_nan=False, indent=indent)

    try:
        text = dumped(value)
    except ValueError:
        text = dumped(copied(value, _finite))
    text = sendable(text)
    # Only strings have other characters than ASCII.
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text) if only_ascii else text


def _finite(_name: str | None, value: Any, _depth: int) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def number_of(text: str) -> float | str:
    """Read a number of JSON. One that is too large for Python stays the text that it was."""
    number = float(text)
    return number if math.isfinite(number) else text
