"""When a schedule is due, in words, for the common forms of cron text. Others have no words: the text must do."""

from __future__ import annotations

import re
from collections.abc import Callable

from stepwell.calendar.cron_text import NICKNAMES
from stepwell.values.duration import describe

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_SHORT_DAYS = {name[:3].lower(): number for number, name in enumerate(_DAYS)}
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_SHORT_MONTHS = {name[:3].lower(): number for number, name in enumerate(_MONTHS, 1)}


def in_words(cron: str | None, every: float | None) -> str | None:
    """Return a sentence part such as "at 02:30, Monday to Friday"; None: there are no words for it."""
    if every is not None:
        return f"every {describe(every)}"
    text = NICKNAMES.get((cron or "").lower(), cron or "")
    fields = text.lower().split()
    if len(fields) == 6 and fields[0] == "0":
        fields = fields[1:]
    if len(fields) != 5:
        return None
    minute, hour, day, month, weekday = fields
    time, days = _time(minute, hour), _days(day, month, weekday)
    if time is None or days is None:
        return None
    return f"{time}, {days}" if days else time


def _time(minute: str, hour: str) -> str | None:
    if re.fullmatch(r"\*/\d+", minute) and hour == "*":
        return f"every {minute[2:]} minutes" if minute != "*/1" else "every minute"
    if minute == "*":
        return "every minute" if hour == "*" else f"every minute of hour {hour}" if hour.isdecimal() else None
    if not minute.isdecimal():
        return None
    if hour == "*":
        return f"every hour at :{int(minute):02}"
    if re.fullmatch(r"\*/\d+", hour):
        return f"every {hour[2:]} hours at :{int(minute):02}"
    hours = hour.split(",")
    if len(hours) <= 4 and all(one.isdecimal() for one in hours):
        return "at " + _listed([f"{int(one):02}:{int(minute):02}" for one in hours])
    span = re.fullmatch(r"(\d+)-(\d+)", hour)
    return span and f"every hour from {int(span[1]):02}:{int(minute):02} to {int(span[2]):02}:{int(minute):02}"


def _days(day: str, month: str, weekday: str) -> str | None:
    """The days, empty if every day; None: there are no words for them."""
    parts: list[str] = []
    if weekday not in ("*", "?"):
        if day != "*":
            return None  # either of the two
        named = _named(weekday, {**_SHORT_DAYS, "7": 0}, lambda n: _DAYS[n % 7])
        if named is None:
            return None
        parts.append(named)
    elif day != "*":
        if day == "l":
            parts.append("on the last day of the month")
        elif day.isdecimal():
            parts.append(f"on day {int(day)} of the month")
        else:
            return None
    if month != "*":
        named = _named(month, _SHORT_MONTHS, lambda n: _MONTHS[(n - 1) % 12])
        if named is None:
            return None
        parts.append(f"in {named}")
    return " ".join(parts)


def _named(field: str, numbers: dict[str, int], name: Callable[[int], str]) -> str | None:
    def number(one: str) -> int | None:
        return numbers.get(one, int(one) if one.isdecimal() and len(one) < 3 else None)

    span = re.fullmatch(r"(\w+)-(\w+)", field)
    parts = list(span.groups()) if span else field.split(",")
    found = [found for part in parts if (found := number(part)) is not None]
    if len(found) < len(parts):
        return None
    names = [name(one) for one in found]
    return " to ".join(names) if span else _listed(names)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
