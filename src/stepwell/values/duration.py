"""Durations as people write them: "50ms", "1h30m", 2.5 (seconds), timedelta. And times, as people read them."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from typing import TypeAlias

from stepwell.errors import ConfigError
from stepwell.errors.text import quoted

Duration: TypeAlias = str | int | float | timedelta
"""Seconds as a number, a timedelta, or text such as "50ms", "30s", "1h30m", "7d", "2w"."""

HUNDRED_YEARS = 100 * 365.25 * 86400.0

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|w)\s*")


def seconds(value: Duration, what: str, *, most: float = HUNDRED_YEARS) -> float:
    """Return the duration in seconds. Raises `ConfigError`, which names `what`, if it is malformed or out of bounds."""
    length = _parse(value, what)
    if math.isnan(length) or length < 0:
        raise ConfigError(f"{what} is {quoted(value)}: it cannot be negative")
    if length > most:
        raise ConfigError(f"{what} is {quoted(value)}: that is more than {describe(most)}")
    return length


def describe(length: float) -> str:
    """Format seconds for a person."""
    if length == math.inf:
        return "forever"
    if length >= HUNDRED_YEARS:
        return "100 years"
    for unit in ("d", "h", "m", "s", "ms"):
        if length >= _UNITS[unit]:
            number = length / _UNITS[unit]
            return f"{number:.3g}{unit}" if number < 1000 else f"{number:.0f}{unit}"
    return f"{length * 1e6:.3g}us" if length else "0s"


def _parse(value: Duration, what: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{what} is a {type(value).__name__}: give seconds, a timedelta, or text such as '30s'")
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    text = value.strip().lower()
    parts = list(_PART.finditer(text))
    if not parts or "".join(part.group(0) for part in parts) != text:
        raise ConfigError(f"{what} is {quoted(value)}: write it as '50ms', '30s', '1h30m', '7d' or '2w'")
    return sum(float(part.group(1)) * _UNITS[part.group(2)] for part in parts)


def local_time(at: datetime | None) -> str:
    return "" if at is None else at.astimezone().isoformat(" ", "milliseconds")
