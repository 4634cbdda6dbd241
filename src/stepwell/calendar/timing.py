"""When a schedule is due: cron text in a time zone, or an interval. `ticks` finds the ticks of a period."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TypeAlias
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import force_setattr

from stepwell.calendar.cron_text import LONGEST_TEXT, NICKNAMES, check_text, check_tz
from stepwell.calendar.wall_time import seek
from stepwell.errors import ConfigError
from stepwell.values.duration import HUNDRED_YEARS, Duration, seconds

SHORTEST = 0.1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Cron(msgspec.Struct, frozen=True):
    """Cron text in a time zone, without extra blanks; `tz` is an IANA name. `ConfigError` names a wrong field."""

    text: str
    tz: str = "UTC"

    def __post_init__(self) -> None:
        force_setattr(self, "text", check_text(self.text))
        check_tz(self.tz)

    def after(self, at: datetime) -> datetime | None:
        """Return the first tick after `at`, in UTC; None: the calendar ends before it."""
        return _seek(self, _utc(at), back=False)


class Interval(msgspec.Struct, frozen=True):
    """An interval in seconds, counted from an anchor so that a restart does not shift the ticks."""

    seconds: float
    anchor: datetime = EPOCH

    def __post_init__(self) -> None:
        _check_length(self.seconds, self.seconds)
        # Postgres and datetime count microseconds. A finer interval would drift from one tick to the next.
        force_setattr(self, "seconds", self.step.total_seconds())
        force_setattr(self, "anchor", _utc(self.anchor))

    @property
    def step(self) -> timedelta:
        return timedelta(seconds=self.seconds)

    def after(self, at: datetime) -> datetime | None:
        """Return the first anchor + n steps after `at`, in UTC; None: the calendar ends before it."""
        try:
            return self.anchor + ((_utc(at) - self.anchor) // self.step + 1) * self.step
        except OverflowError:
            return None


Timing: TypeAlias = Cron | Interval


def parse_timing(given: Duration, tz: str | None = None) -> Timing:
    """Parse an interval (a timedelta, a number of seconds, or text that is a duration), or else cron text."""
    length = _length(given)
    if length is None:
        assert isinstance(given, str)
        return Cron(given, "UTC" if tz is None else tz)
    if tz is not None:
        raise ConfigError(f"schedule is {given!r} with tz {tz!r}: tz is for cron, an interval is the same in all zones")
    _check_length(length, given)
    return Interval(float(length))


def ticks(timing: Timing, after: datetime, until: datetime, most: int) -> list[datetime]:
    """Return the ticks after `after` up to and including `until`, oldest first; at most the newest `most`. The cost
    depends on the number returned, not on the length of the period: cron is walked backwards from `until`."""
    after, until = _utc(after), _utc(until)
    if isinstance(timing, Interval):
        newest = (until - timing.anchor) // timing.step
        oldest = max((after - timing.anchor) // timing.step, newest - most) + 1
        return [timing.anchor + n * timing.step for n in range(oldest, newest + 1)]
    found: list[datetime] = []
    tick = _seek(timing, until + timedelta.resolution, back=True)
    while tick is not None and tick > after and len(found) < most:
        found.append(tick)
        tick = _seek(timing, tick, back=True)
    return found[::-1]


def _seek(cron: Cron, at: datetime, *, back: bool) -> datetime | None:
    """Return the tick next to `at`, after or before it; None: the calendar ends before it."""
    try:
        return seek(_zone(cron.tz), NICKNAMES.get(cron.text.lower(), cron.text), at, back=back)
    except (StopIteration, OverflowError):
        return None


def _zone(tz: str) -> tzinfo:
    # The default must work without a time zone database.
    return UTC if tz == "UTC" else ZoneInfo(tz)


def _utc(at: datetime) -> datetime:
    """Convert to UTC: two datetimes of one zone compare by wall time and ignore the fold."""
    if at.tzinfo is None:
        raise TypeError(f"{at!r} has no time zone")
    return at.astimezone(UTC)


def _length(given: Duration) -> float | None:
    """Return the interval, not yet checked; None: the text is not an interval."""
    if isinstance(given, timedelta):
        return given.total_seconds()
    if isinstance(given, str):
        if len(given) > LONGEST_TEXT:
            return None
        try:
            return seconds(given, "schedule", most=math.inf)
        except ConfigError:
            return None
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ConfigError(
            f"schedule is a {type(given).__name__}: give cron text such as '0 3 * * *', or an interval as seconds, a "
            "timedelta or text such as '15m'"
        )
    return given


def _check_length(length: float, given: Duration) -> None:
    # Written so that NaN, which compares false, is refused too.
    if not SHORTEST <= length <= HUNDRED_YEARS:
        raise ConfigError(f"schedule is {given!r}: an interval must be between 100ms and 100 years")
