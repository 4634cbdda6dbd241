"""A schedule as a value: as code defines it, as people read it, and the record of its ticks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, TypeAlias
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from stepwell.calendar.timing import Cron, Interval, Timing, parse_timing, ticks
from stepwell.errors import ConfigError
from stepwell.values.bounds import check_whole
from stepwell.values.duration import Duration

When: TypeAlias = Duration
"""Cron text, or an interval: seconds as a number, a timedelta, or text such as "15m"."""

Overlap = Literal["skip", "allow", "queue", "replace"]
"""The action of a tick while an earlier run has not ended: skip, run concurrently, wait for its end, or cancel it."""

Catchup = Literal["skip", "once"] | int
"""The fate of ticks that no worker saw: none runs, the newest runs, or up to this many run."""

Stale = Literal["keep", "remove_stale", "remove_all"]
"""The fate, when a worker starts, of schedules that are no longer in the code."""

OVERLAPS: tuple[Overlap, ...] = ("skip", "allow", "queue", "replace")
STALES: tuple[Stale, ...] = ("keep", "remove_stale", "remove_all")
MOST_CAUGHT_UP = 1000
MOST_BACKFILLED = 1000


class NewSchedule(msgspec.Struct, frozen=True):
    """A schedule to make or change, with args already JSON."""

    name: str
    task: str
    args: str
    queue: str
    priority: int
    timing: Timing
    overlap: Overlap
    catchup: int
    jitter: float
    metadata: str | None = None
    """Metadata of its jobs, as JSON, like the policy."""
    max_attempts: int | None = None
    policy: str | None = None


class DueSchedule(msgspec.Struct, frozen=True):
    """The fields from which a worker computes ticks. `due_in`: at most 0 if the schedule is due, None if never."""

    id: str
    name: str
    version: int
    cron: str | None
    tz: str | None
    every: float | None
    catchup: int
    due_at: datetime | None
    due_in: float | None
    looked_at: datetime

    @property
    def timing(self) -> Timing:
        """When it is due. Raises `ConfigError` if this machine does not know the time zone."""
        return to_timing(self.cron, self.tz, self.every)


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """Everything about a schedule. `args` are plain JSON values."""

    id: UUID
    owner: str
    """The name of the app that the schedule belongs to."""
    name: str
    task: str
    args: dict[str, Any]
    queue: str
    priority: int
    cron: str | None
    tz: str | None
    every: float | None
    """The interval in seconds; None: the schedule has cron text."""
    overlap: Overlap
    catchup: int
    """How many missed ticks run: 0, 1 or more."""
    jitter: float
    declared: bool
    """Whether it is declared in code; False: made at run time."""
    version: int
    created_at: datetime
    paused_at: datetime | None
    next_run_at: datetime | None
    """None: paused, or never due again. The column of stepwell.schedule behind the view is named next_tick_at."""
    last_run_at: datetime | None
    last_job_id: UUID | None
    live: int
    """How many of its runs have not ended."""
    metadata: dict[str, Any] | None
    """The metadata of its jobs."""
    max_attempts: int | None
    policy: dict[str, Any] | None
    """The policy of its jobs, as in `JobInfo`. None: the task's policy applies."""

    def preview(self, n: int = 5) -> list[datetime]:
        """Return the next `n` times it is due; if it is paused, counted from now by this machine's clock."""
        start = self.next_run_at - timedelta(microseconds=1) if self.next_run_at else datetime.now(UTC)
        return following(to_timing(self.cron, self.tz, self.every), start, n)


@dataclass(frozen=True, slots=True)
class Tick:
    """The record of one tick of a schedule."""

    at: datetime
    handled_at: datetime
    job_id: UUID | None
    skipped: str | None
    """Why the tick enqueued no job: overlap, or missed."""
    triggered: bool
    """Whether a person triggered it, apart from the timing."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """How the ticks of a past period fared in a backfill."""

    ticks: int
    """How many ticks the period has."""
    enqueued: int
    """How many of them got a run; in a preview, would get one."""
    ran: int
    """How many had a run already."""
    unknown: int
    """How many are so old that it is not known whether they ran: they get no run. The newest thousand are known."""
    taken: int
    """How many got no run because another job has its unique key."""


def preview(when: When, *, tz: str | None = None, n: int = 5) -> list[datetime]:
    """Return the next `n` times that a schedule with this cron text or interval would be due, by this machine's
    clock."""
    return following(parse_timing(when, tz), datetime.now(UTC), n)


def following(timing: Timing, at: datetime, n: int) -> list[datetime]:
    """Return the first `n` ticks after `at`, in the schedule's own time zone."""
    check_whole(n, "n", 1, 10_000)
    zone = ZoneInfo(timing.tz) if isinstance(timing, Cron) else UTC
    found: list[datetime] = []
    tick = timing.after(at)
    while tick is not None and len(found) < n:
        found.append(tick.astimezone(zone))
        tick = timing.after(tick)
    return found


def past_ticks(timing: Timing, since: datetime, until: datetime) -> list[datetime]:
    """Return the ticks from `since` on, before `until`, oldest first. Raises `ConfigError` if they are too many."""
    moment = timedelta.resolution
    found = ticks(timing, since - moment, until - moment, MOST_BACKFILLED + 1)
    if len(found) > MOST_BACKFILLED:
        raise ConfigError(
            f"there are more than {MOST_BACKFILLED:,} ticks in that period: backfill a part of it at a time"
        )
    return found


@lru_cache(maxsize=10_000)
def to_timing(cron: str | None, tz: str | None, every: float | None) -> Timing:
    if cron is not None and tz is not None:
        return Cron(cron, tz)
    assert every is not None
    return Interval(every)


def from_timing(timing: Timing) -> tuple[str | None, str | None, float | None]:
    return (timing.text, timing.tz, None) if isinstance(timing, Cron) else (None, None, timing.seconds)


def check_catchup(catchup: Catchup) -> int:
    if catchup == "skip":
        return 0
    if catchup == "once":
        return 1
    if isinstance(catchup, bool) or not isinstance(catchup, int) or not 1 <= catchup <= MOST_CAUGHT_UP:
        raise ConfigError(
            f"catchup is {catchup!r}: it must be 'skip', 'once' or the most ticks to run, up to {MOST_CAUGHT_UP}"
        )
    return catchup
