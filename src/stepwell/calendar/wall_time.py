"""From one tick of cron to the next, on clocks that turn. Pure: knows no clock and no database.

cronsim walks from one wall time to the next, in naive datetimes: days of the month and of the week both restricted
means either, as in every cron. Given a zone, it answers from the second pass through an hour with a time already past,
loses ticks where clocks turn by half an hour, and with six fields runs a daily job twice or not at all. So how wall
times become instants where clocks turn is said here:

- A schedule for certain hours ("30 2 * * *", "0 9-17 * * *", "0 */2 * * *") runs once for every wall time. One that is
  skipped runs at the first instant after the gap; all that are skipped together run once. One that comes twice runs the
  first time.
- A schedule for every hour (a star, or all 24) follows the clock on the wall: it runs whenever that shows such a time,
  twice where it comes twice, and makes up for nothing, for its next time is near.

Debian's rule, and cronsim's, goes by the star alone: then "0 */2 * * *" would lose a run on the day without a 2
o'clock, and "*/15 2 * * *" would not run at all. A sixth field changes nothing about it.
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
    """The tick next to `at`, after it or before it. Raises StopIteration or OverflowError where the calendar ends."""
    hourly = _is_hourly(fields)
    local = at.astimezone(zone)
    wall = _wall(local)
    found: list[datetime] = []
    twice = _turn(zone, wall)  # not skipped, for a clock has shown it
    if twice and hourly and local.fold == back:
        # The other pass through these wall times lies ahead: the second one, or on the way back the first.
        other = step(fields, twice.high if back else twice.low - _SECOND, back=back)
        if twice.low <= other < twice.high:
            found.append(_instant(zone, other, fold=not back))
    elif twice and not hourly and local.fold:
        # All of them ran in the first pass.
        wall = twice.high if back else twice.high - _SECOND
    while True:
        wall = step(fields, wall, back=back)
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


def step(fields: str, wall: datetime, *, back: bool) -> datetime:
    """The wall time next to this one that fits the fields."""
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


class _Turn(NamedTuple):
    """Clocks turn at an instant: the wall times from `low` until `high` are skipped, or come twice."""

    at: datetime
    low: datetime
    high: datetime
    skipped: bool


@lru_cache(maxsize=10_000)
def _is_hourly(fields: str) -> bool:
    return len(CronSim(fields, SOME_WALL_TIME).hours) == 24
