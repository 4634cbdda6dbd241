"""Times, lengths, counts and values as text for people. Templates use these as filters."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from stepwell.values.json_copy import TOO_DEEP

MOST_COUNTED = 10_000
NOTHING = "\N{EN DASH}"
_LONGEST_SAID = 4000
_UNITS = (("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0))


def brief(said: object) -> str:
    """A message, cut: it may quote what somebody sent, or what a job has."""
    text = str(said)
    return text if len(text) <= _LONGEST_SAID else f"{text[:_LONGEST_SAID]}... ({len(text):,} characters)"


def to_time(given: str | datetime | None) -> datetime | None:
    """Read a time as Postgres writes it in JSON. None: there is none, or Python has no such year."""
    if given is None or isinstance(given, datetime):
        return given
    try:
        return datetime.fromisoformat(given)
    except ValueError:
        return None


def count(number: int | None, most: int = MOST_COUNTED, *, more: bool = False) -> str:
    """A number with separators. A plus says that there may be `more`, or that counting stopped after `most`."""
    if number is None:
        return NOTHING
    return f"{min(number, most):,}+" if more or number > most else f"{number:,}"


def compact_number(number: float) -> str:
    """A rate or an average, with three digits."""
    if number >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}" if number else "0"


def length(seconds: float | None) -> str:
    """A length of time in its two largest units. A clock that was set back makes no negative length."""
    if seconds is None:
        return NOTHING
    left = max(seconds, 0.0)
    if left < 1:
        digits = ".1f" if left < 0.001 else ".0f"
        return f"{left * 1000:{digits}} ms" if left else "0 s"
    if left < 60:
        return f"{left:.1f} s" if left < 10 else f"{left:.0f} s"
    parts: list[str] = []
    for unit, size in _UNITS:
        whole = int(left // size)
        if whole or parts:
            parts.append(f"{whole}{unit}")
            left -= whole * size
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0")) or "0 s"


def between(start: Any, end: Any) -> float | None:
    """Seconds from one time to another, at least 0; None: one of them is missing."""
    begun, ended = to_time(start), to_time(end)
    return None if begun is None or ended is None else max((ended - begun).total_seconds(), 0.0)


def ago(at: Any, now: Any) -> str:
    """A time seen from now: "5 m ago", "in 2 h"."""
    then, present = to_time(at), to_time(now)
    if then is None or present is None:
        return NOTHING
    seconds = (present - then).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{_largest(seconds)} ago" if seconds > 0 else f"in {_largest(-seconds)}"


def _largest(seconds: float) -> str:
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "0s"


def exact(at: Any) -> str:
    """A time to the millisecond, in UTC."""
    then = to_time(at)
    if then is None:
        return "" if at is None else str(at)
    return then.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def moment(at: Any, point_seconds: float) -> str:
    """A point of a chart, in UTC: the time of day, and the day if the chart is about several."""
    then = to_time(at)
    if then is None:
        return NOTHING
    return then.astimezone(UTC).strftime("%H:%M" if point_seconds < 900 else "%d %b %H:%M")


def size(number: float | None) -> str:
    if number is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TB"


def rate(per_second: float | None) -> str:
    """Jobs per second, minute or hour: the first of these in which there is at least one."""
    if per_second is None:
        return NOTHING
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3600)):
        if per_second * seconds >= 0.9999:
            return f"{per_second * seconds:.4g}/{unit}"
    return f"{per_second * 86400:.4g}/d"


def pretty(value: Any) -> str:
    """A JSON value over several lines. Numbers keep all their digits."""
    return _dump(value, indent=2)


def short(value: Any, most: int = 160) -> str:
    """A JSON value in one line, cut. The arguments of a job are shown as name=value."""
    if isinstance(value, dict):
        text = "  ".join(f"{name}={_dump(field)}" for name, field in value.items())  # pyright: ignore[reportUnknownVariableType]
    else:
        text = _dump(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _dump(value: Any, indent: int | None = None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent)
    except (RecursionError, ValueError):
        return TOO_DEEP


FILTERS: dict[str, Any] = {
    "count": count,
    "compact": compact_number,
    "took": length,
    "ago": ago,
    "exact": exact,
    "moment": moment,
    "size": size,
    "rate": rate,
    "pretty": pretty,
    "short": short,
}
