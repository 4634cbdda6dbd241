"""What a schedule must do, found the slow way: look at the clock on the wall once a minute, or once a second.

Shares nothing with `stepwell.cron`: it reads cron text by itself and asks zoneinfo only what a clock shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_DAY = timedelta(days=1)


class Rule:
    """Cron text, as a question to ask of a wall time."""

    def __init__(self, text: str) -> None:
        fields = text.upper().split()
        self.unit = timedelta(minutes=1) if len(fields) == 5 else timedelta(seconds=1)
        second, minute, hour, self.day, month, self.weekday = ["0", *fields][-6:]
        self.seconds = _numbers(second, 0, 59)
        self.minutes = _numbers(minute, 0, 59)
        self.hours = _numbers(hour, 0, 23)
        self.months = _numbers(month, 1, 12, _MONTHS)
        self.hourly = len(self.hours) == 24
        self.both_days = self.day.startswith("*") or self.weekday.startswith("*")

    def matches(self, wall: datetime) -> bool:
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.second in self.seconds
            and wall.month in self.months
            and self._matches_day(wall)
        )

    def _matches_day(self, wall: datetime) -> bool:
        day = any(_is_day(term, wall) for term in self.day.split(","))
        weekday = any(_is_weekday(term, wall) for term in self.weekday.split(","))
        return (day and weekday) if self.both_days else (day or weekday)


def due(text: str, tz: str, after: datetime, until: datetime, *, lead: timedelta = _DAY) -> list[datetime]:
    """All ticks after `after` up to and with `until`; what the clock showed since `lead` before has been shown."""
    rule = Rule(text)
    return [tick for tick in _watch(rule, ZoneInfo(tz), after - lead, until) if tick > after]


def turns(tz: str, after: datetime, until: datetime) -> list[datetime]:
    """The instants at which clocks turn, by looking every six hours."""
    zone, found = ZoneInfo(tz), list[datetime]()
    at, pace = after, timedelta(hours=6)
    while at < until:
        early, late = at, at + pace
        if early.astimezone(zone).utcoffset() != late.astimezone(zone).utcoffset():
            while late - early > timedelta(seconds=1):
                middle = (early + (late - early) / 2).replace(microsecond=0)
                if middle.astimezone(zone).utcoffset() == early.astimezone(zone).utcoffset():
                    early = middle
                else:
                    late = middle
            found.append(late)
        at += pace
    return found


def _watch(rule: Rule, zone: ZoneInfo, start: datetime, until: datetime) -> Iterator[datetime]:
    at = start.astimezone(UTC).replace(second=0, microsecond=0)
    before = at.astimezone(zone).replace(tzinfo=None)
    shown: set[datetime] = set()
    while (at := at + rule.unit) <= until:
        wall = at.astimezone(zone).replace(tzinfo=None)
        if rule.hourly:
            is_due = rule.matches(wall)
        else:
            skipped = _between(before, wall, rule.unit)
            is_due = (rule.matches(wall) and wall not in shown) or any(rule.matches(each) for each in skipped)
        if is_due:
            yield at
        shown.add(wall)
        before = wall


def _between(low: datetime, high: datetime, unit: timedelta) -> Iterator[datetime]:
    while (low := low + unit) < high:
        yield low


def _numbers(field: str, lowest: int, highest: int, names: list[str] | None = None) -> set[int]:
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            low, high = lowest, highest
        else:
            low = _number(first, lowest, names)
            high = _number(last, lowest, names) if last else highest if step else low
        found.update(range(low, high + 1, int(step or 1)))
    return found


def _number(text: str, lowest: int, names: list[str] | None) -> int:
    return names.index(text) + lowest if names and text in names else int(text)


def _is_day(term: str, wall: datetime) -> bool:
    if term == "L":
        return (wall + _DAY).day == 1
    if term == "LW":
        later = [wall + n * _DAY for n in range(1, 7)]
        rest = [each for each in later if each.month == wall.month]
        return wall.weekday() < 5 and not any(each.weekday() < 5 for each in rest)
    return wall.day in _numbers(term, 1, 31)


def _is_weekday(term: str, wall: datetime) -> bool:
    today = {wall.isoweekday(), wall.isoweekday() % 7}
    if term.endswith("L"):
        return int(term[:-1]) in today and (wall + 7 * _DAY).month != wall.month
    if "#" in term:
        name, _, nth = term.partition("#")
        return _number(name, 0, _DAYS) in today and (wall.day - 1) // 7 + 1 == int(nth)
    return bool(today & _numbers(term, 0, 7, _DAYS))
