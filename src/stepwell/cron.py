"""When a schedule is due: cron text in a time zone, or an interval. Pure: knows no clock and no database.

Cron text has five fields (minute, hour, day of month, month, day of week), or six with the second first. What each
field may hold is cronsim's affair, and so is the walk from one wall time to the next: days of the month and of the
week both restricted means either, as in every cron. What is ours is how wall times become instants where clocks turn:

- A schedule for certain hours ("30 2 * * *", "0 9-17 * * *", "0 */2 * * *") runs once for every wall time. One that is
  skipped runs at the first instant after the gap; all that are skipped together run once. One that comes twice runs the
  first time.
- A schedule for every hour (a star, or all 24) follows the clock on the wall: it runs whenever that shows such a time,
  twice where it comes twice, and makes up for nothing, for its next time is near.

Debian's rule, and cronsim's, goes by the star alone: then "0 */2 * * *" would lose a run on the day without a 2
o'clock, and "*/15 2 * * *" would not run at all. A sixth field changes nothing about it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from stepwell.duration import HUNDRED_YEARS, Duration, seconds
from stepwell.errors import ConfigError

SHORTEST = 0.1
LONGEST_TEXT = 200
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SECOND = timedelta(seconds=1)
_SOME_WALL_TIME = datetime(2000, 1, 1)  # noqa: DTZ001
_LISTS = "or a list '1,5', an upward range '1-5' or a step '*/5' of these"
_FIELDS = (
    ("second", 59, f"0 to 59, {_LISTS}"),
    ("minute", 59, f"0 to 59, {_LISTS}"),
    ("hour", 23, f"0 to 23, {_LISTS}"),
    ("day of month", 31, f"1 to 31, L for the last day, LW for the last weekday, {_LISTS}"),
    ("month", 12, f"1 to 12, JAN to DEC, {_LISTS}"),
    (
        "day of week",
        7,
        f"0 to 7 (0 and 7 are Sunday), SUN to SAT, 5L for the last Friday, MON#2 for the second Monday, {_LISTS}",
    ),
)
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclass(frozen=True, slots=True)
class Cron:
    """Cron text in a time zone. `text` is as it was written, but for spare blanks; `tz` is an IANA name."""

    text: str
    tz: str = "UTC"

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _check_text(self.text))
        _check_tz(self.tz)

    def after(self, at: datetime) -> datetime | None:
        """The first tick after `at`, in UTC; None where the calendar ends."""
        return _seek(self, _utc(at), back=False)


@dataclass(frozen=True, slots=True)
class Interval:
    """Every so many seconds, counted from an anchor, so that a restart does not shift it."""

    seconds: float
    anchor: datetime = EPOCH

    def __post_init__(self) -> None:
        _check_length(self.seconds, self.seconds)
        # Postgres and datetime count microseconds: what is finer would be lost there, one tick after the other.
        object.__setattr__(self, "seconds", self.step.total_seconds())
        object.__setattr__(self, "anchor", _utc(self.anchor))

    @property
    def step(self) -> timedelta:
        return timedelta(seconds=self.seconds)

    def after(self, at: datetime) -> datetime | None:
        """The first anchor + n steps after `at`, in UTC; None where the calendar ends."""
        try:
            return self.anchor + ((_utc(at) - self.anchor) // self.step + 1) * self.step
        except OverflowError:
            return None


Timing: TypeAlias = Cron | Interval


def parse_cron(text: str, tz: str = "UTC") -> Cron:
    """The cron text in that zone, or a ConfigError that names the field which is wrong."""
    return Cron(text, tz)


def parse_timing(given: Duration, tz: str | None = None) -> Timing:
    """An interval for a timedelta, a number of seconds, or text that reads as a length of time; else cron."""
    length = _length(given)
    if length is None:
        assert isinstance(given, str)
        return Cron(given, "UTC" if tz is None else tz)
    if tz is not None:
        raise ConfigError(f"schedule is {given!r} with tz {tz!r}: tz is for cron, an interval is the same in all zones")
    _check_length(length, given)
    return Interval(float(length))


def ticks(timing: Timing, after: datetime, until: datetime, most: int) -> list[datetime]:
    """The ticks after `after` up to and with `until`, oldest first; the newest `most` if there are more.

    The cost is that of what it returns, however much lies between: cron is walked backwards from `until`.
    """
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


def latest(timing: Timing, after: datetime, until: datetime) -> datetime | None:
    """The newest tick after `after` up to and with `until`."""
    found = ticks(timing, after, until, 1)
    return found[0] if found else None


class _Turn(NamedTuple):
    """Clocks turn at an instant: the wall times from `low` until `high` are skipped, or come twice."""

    at: datetime
    low: datetime
    high: datetime
    skipped: bool


def _seek(cron: Cron, at: datetime, *, back: bool) -> datetime | None:
    """The tick next to `at`, after it or before it.

    cronsim is only asked for wall times, in naive datetimes. Given a zone, it answers from the second pass through an
    hour with a time already past, loses ticks where clocks turn by half an hour, and with six fields runs a daily job
    twice or not at all.
    """
    try:
        return _seek_in(_zone(cron.tz), _NICKNAMES.get(cron.text.lower(), cron.text), at, back)
    except (StopIteration, OverflowError):
        return None


def _seek_in(zone: tzinfo, fields: str, at: datetime, back: bool) -> datetime:
    hourly = _is_hourly(fields)
    local = at.astimezone(zone)
    wall = _wall(local)
    found: list[datetime] = []
    twice = _turn(zone, wall)  # not skipped, for a clock has shown it
    if twice and hourly and local.fold == back:
        # The other pass through these wall times lies ahead: the second one, or on the way back the first.
        other = _step(fields, twice.high if back else twice.low - _SECOND, back)
        if twice.low <= other < twice.high:
            found.append(_instant(zone, other, fold=not back))
    elif twice and not hourly and local.fold:
        # All of them ran in the first pass.
        wall = twice.high if back else twice.high - _SECOND
    while True:
        wall = _step(fields, wall, back)
        turn = _turn(zone, wall)
        if turn and turn.skipped:
            found += [] if hourly else [turn.at]
            # On to the far side at once: a day that is skipped has many seconds.
            wall = turn.low if back else turn.high - _SECOND
        else:
            # Where it comes twice, these are its two passes; else they are the same instant.
            found += [_instant(zone, wall, fold=fold) for fold in ((False, True) if hourly else (False,))]
        ahead = [tick for tick in found if (tick < at if back else tick > at)]
        if ahead:
            return max(ahead) if back else min(ahead)


def _step(fields: str, wall: datetime, back: bool) -> datetime:
    return next(CronSim(fields, wall, reverse=back))


def _turn(zone: tzinfo, wall: datetime) -> _Turn | None:
    """The turn of the clock that skips this wall time or makes it come twice."""
    wall = wall.replace(microsecond=0)
    first, second = _instant(zone, wall, fold=False), _instant(zone, wall, fold=True)
    if first == second:
        return None
    # PEP 495: fold 0 reads the wall time by the offset before the turn, fold 1 by the one after it.
    skipped = first > second
    early, late = min(first, second), max(first, second)
    new = late.astimezone(zone).utcoffset()
    width = late - early

    def has_turned(passed: int) -> bool:
        return (early + passed * _SECOND).astimezone(zone).utcoffset() == new

    at = early + bisect_left(range(width // _SECOND), True, key=has_turned) * _SECOND
    shown = _wall(at.astimezone(zone))
    return _Turn(at, shown - width, shown, True) if skipped else _Turn(at, shown, shown + width, False)


def _wall(local: datetime) -> datetime:
    return local.replace(tzinfo=None, fold=0)


def _instant(zone: tzinfo, wall: datetime, *, fold: bool) -> datetime:
    return wall.replace(tzinfo=zone, fold=int(fold)).astimezone(UTC)


def _zone(tz: str) -> tzinfo:
    # The default must not depend on a database of zones.
    return UTC if tz == "UTC" else ZoneInfo(tz)


def _utc(at: datetime) -> datetime:
    """Two datetimes of one zone compare by their wall times, whichever pass they are in; in UTC that cannot be."""
    if at.tzinfo is None:
        raise TypeError(f"{at!r} has no time zone")
    return at.astimezone(UTC)


@lru_cache(maxsize=1024)
def _is_hourly(fields: str) -> bool:
    return len(CronSim(fields, _SOME_WALL_TIME).hours) == 24


def _length(given: Duration) -> float | None:
    """The interval that is meant, still unchecked; None for what is not meant as one."""
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
    # Written so that NaN, which is not between anything, is refused, too.
    if not SHORTEST <= length <= HUNDRED_YEARS:
        raise ConfigError(f"schedule is {given!r}: an interval must be between 100ms and 100 years")


def _check_text(text: str) -> str:
    if not isinstance(text, str):
        raise ConfigError(f"schedule is a {type(text).__name__}: give cron text such as '0 3 * * *'")
    if len(text) > LONGEST_TEXT:
        raise ConfigError(f"schedule is {text[:40]!r}...: it has {len(text)} characters, {LONGEST_TEXT} is the most")
    for char in text:
        if char != "\t" and not " " <= char <= "~":
            raise ConfigError(
                f"schedule is {text!r}: {char!r} cannot stand in cron text, write it on one line in ASCII"
            )
    text = " ".join(text.split())
    if text.startswith("@"):
        return _check_nickname(text)
    parts = text.split()
    if len(parts) not in (5, 6):
        raise ConfigError(
            f"schedule is {text!r}: cron has 5 fields (minute, hour, day of month, month, day of week) or 6 (the "
            f"second first), this has {len(parts)}; an interval is written as '90s' or '1h30m'"
        )
    for index, part in enumerate(parts, start=6 - len(parts)):
        _check_field(text, index, part)
    try:
        _step(text, _SOME_WALL_TIME, back=False)
    except (CronSimError, StopIteration):
        raise ConfigError(
            f"schedule is {text!r}: no such day ever comes, change the day of month, the month or the day of week"
        ) from None
    return text


def _check_nickname(text: str) -> str:
    if text.lower() == "@reboot":
        raise ConfigError(
            "schedule is '@reboot': a schedule goes by the clock, whatever starts; enqueue the job at start"
        )
    if text.lower() not in _NICKNAMES:
        raise ConfigError(f"schedule is {text!r}: it must be one of {', '.join(_NICKNAMES)}, or cron fields")
    return text


def _check_field(text: str, index: int, part: str) -> None:
    """cronsim tells of a bad field only its name; asked for each one alone, it tells which term."""
    name, highest, allowed = _FIELDS[index]
    for term in part.split(","):
        alone = ["*"] * 6
        alone[index] = term or "nothing"  # or the next field would slip into its place
        try:
            CronSim(" ".join(alone), _SOME_WALL_TIME)
        except CronSimError:
            within = "" if term == part else f" with {term!r}"
            raise ConfigError(f"schedule is {text!r}: {name} is {part!r}{within}, it must be {allowed}") from None
        # cronsim takes "*/90" in the minutes for "0", and "9-9/2" for "9-59/2". Nobody means that.
        span, _, step = term.partition("/")
        low, _, high = span.upper().partition("-")
        if step and int(step) > highest:
            raise ConfigError(f"schedule is {text!r}: {name} is {part!r}, its step must be 1 to {highest}")
        if step and low == high:
            raise ConfigError(f"schedule is {text!r}: {name} is {part!r}, a step needs a wider range than {span!r}")


def _check_tz(tz: str) -> None:
    if not isinstance(tz, str):
        raise ConfigError(f"tz is a {type(tz).__name__}: give the name of a time zone such as 'Europe/Paris'")
    if tz == "UTC" or tz in _zones():
        return
    if not _zones():
        raise ConfigError(f"tz is {tz!r}: this machine has no time zones, install the package 'tzdata'")
    shown = tz[:40]
    names = {name.lower(): name for name in _zones()}
    near = get_close_matches(shown.lower(), names, n=1)
    advice = f"did you mean {names[near[0]]!r}?" if near else "write a name such as 'Europe/Paris' or 'UTC'"
    raise ConfigError(f"tz is {shown!r}: there is no such time zone, {advice}")


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    """Their names. `ZoneInfo(name)` itself takes other spellings where the file system does; and a "localtime"
    would be another zone on each worker."""
    return frozenset(available_timezones() - {"localtime", "posixrules", "Factory"})
