"""Find the next cron tick across changes of the clock, such as daylight saving.

cronsim steps from one wall time to the next, in naive datetimes: if both the day of month and the day of week are
restricted, either one matches, as in every cron. Given a time zone, cronsim returns a time already past from the second
pass through a repeated hour, loses ticks where clocks change by half an hour, and with six fields runs a daily job
twice or not at all. So this module converts wall times to instants by its own rules:

- A schedule for certain hours ("30 2 * * *", "0 9-17 * * *", "0 */2 * * *") runs once for every wall time. A skipped
  wall time runs at the first instant after the gap; all wall times of one gap run once together. A repeated wall time
  runs the first time.
- A schedule for every hour (a star, or all 24) follows the wall clock: it runs whenever the clock shows a matching
  time, twice if that time is repeated. Skipped times are not made up for, because the next tick is near.

The rule of Debian's cron, and of cronsim, looks only at the star: then "0 */2 * * *" would lose a run on the day
without a 2 o'clock, and "*/15 2 * * *" would not run at all. A sixth field changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple

from cronsim import CronSim

SOME_WALL_TIME = datetime(2000, 1, 1)  # noqa: DTZ001

_SECOND = timedelta(seconds=1)


def seek(zone: tzinfo, fields: str, at: datetime, *, back: bool) -> datetime:
    """Return the tick next to `at`, after or before it. Raises StopIteration or OverflowError if the calendar ends."""
    hourly = _is_hourly(fields)
    local = at.astimezone(zone)
    wall = _wall(local)
    found: list[datetime] = []
    twice = _change(zone, wall)  # never a gap: a clock has shown this time
    if twice and hourly and local.fold == back:
        # The other pass through the repeated wall times lies ahead: the second pass, or going back the first.
        other = step(fields, twice.high if back else twice.low - _SECOND, back=back)
        if twice.low <= other < twice.high:
            found.append(_instant(zone, other, fold=not back))
    elif twice and not hourly and local.fold:
        # All repeated wall times ran in the first pass.
        wall = twice.high if back else twice.high - _SECOND
    while True:
        wall = step(fields, wall, back=back)
        change = _change(zone, wall)
        if change and change.skipped:
            found += [] if hourly else [change.at]
            # Jump over the gap at once: a skipped day has many seconds.
            wall = change.low if back else change.high - _SECOND
        else:
            # The two passes of a repeated wall time; for any other they are the same instant.
            found += [_instant(zone, wall, fold=fold) for fold in ((False, True) if hourly else (False,))]
        ahead = [tick for tick in found if (tick < at if back else tick > at)]
        if ahead:
            return max(ahead) if back else min(ahead)


def step(fields: str, wall: datetime, *, back: bool) -> datetime:
    """Return the next wall time, or the previous one, that matches the fields."""
    return next(CronSim(fields, wall, reverse=back))


def _change(zone: tzinfo, wall: datetime) -> _Change | None:
    """Return the change of the clock that skips or repeats this wall time; None: there is none."""
    wall = wall.replace(microsecond=0)
    first, second = _instant(zone, wall, fold=False), _instant(zone, wall, fold=True)
    if first == second:
        return None
    # PEP 495: fold 0 reads the wall time with the offset before the change, fold 1 with the offset after it.
    skipped = first > second
    early, late = min(first, second), max(first, second)
    new = late.astimezone(zone).utcoffset()
    width = late - early

    def has_changed(passed: int) -> bool:
        return (early + passed * _SECOND).astimezone(zone).utcoffset() == new

    at = early + bisect_left(range(width // _SECOND), True, key=has_changed) * _SECOND
    shown = _wall(at.astimezone(zone))
    return _Change(at, shown - width, shown, True) if skipped else _Change(at, shown, shown + width, False)


def _wall(local: datetime) -> datetime:
    return local.replace(tzinfo=None, fold=0)


def _instant(zone: tzinfo, wall: datetime, *, fold: bool) -> datetime:
    return wall.replace(tzinfo=zone, fold=int(fold)).astimezone(UTC)


class _Change(NamedTuple):
    """A change of the clock at an instant: the wall times from `low` until `high` are skipped, or repeated."""

    at: datetime
    low: datetime
    high: datetime
    skipped: bool


@lru_cache(maxsize=10_000)
def _is_hourly(fields: str) -> bool:
    return len(CronSim(fields, SOME_WALL_TIME).hours) == 24
