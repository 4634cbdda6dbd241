"""What must become of every tick of a day, from the rules as they are told to people.

Shares nothing with Stepwell: when a schedule is due it finds by looking at the clock on the wall once a minute. It is
told what the test does, and when all that is due has been seen to and all that may run has run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from tests.unit import cron_oracle

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NICKNAMES = {"@hourly": "0 * * * *", "@daily": "0 0 * * *"}


@dataclass(frozen=True, slots=True)
class Rule:
    """A schedule as somebody writes it down."""

    name: str
    when: str | int
    """Cron text, or every so many seconds."""
    tz: str | None
    overlap: Literal["skip", "allow", "queue", "replace"]
    catchup: Literal["skip", "once"] | int
    queue: str
    jitter: int = 0


@dataclass(slots=True)
class Tick:
    """What must become of one tick."""

    at: datetime
    seen_at: datetime
    skipped: str | None = None
    triggered: bool = False
    fate: Literal["live", "succeeded", "cancelled"] | None = None
    """Of its run; None: there is none."""

    @property
    def told(self) -> tuple[datetime, str | None, bool, str | None]:
        """All of it but when it was seen to, which is not known to the second."""
        return self.at, self.skipped, self.triggered, self.fate


@dataclass(slots=True)
class _Schedule:
    rule: Rule
    times: list[datetime]
    due: datetime | None
    paused: bool = False
    ticks: dict[datetime, Tick] = field(default_factory=dict[datetime, Tick])

    @property
    def live(self) -> list[Tick]:
        return [tick for tick in self.ticks.values() if tick.fate == "live"]

    def after(self, now: datetime) -> datetime | None:
        """None: later than anybody here looks."""
        place = bisect_right(self.times, now)
        return self.times[place] if place < len(self.times) else None


class Oracle:
    """Knows what must be there, for the time from `start` to `end`."""

    def __init__(self, start: datetime, end: datetime) -> None:
        self._start = start
        self._end = end
        self._schedules: dict[str, _Schedule] = {}

    @property
    def names(self) -> list[str]:
        return sorted(self._schedules)

    @property
    def count(self) -> int:
        """How many ticks have been seen to."""
        return sum(len(schedule.ticks) for schedule in self._schedules.values())

    def rule(self, name: str) -> Rule:
        return self._schedules[name].rule

    def ticks(self, name: str) -> list[Tick]:
        return [tick for _, tick in sorted(self._schedules[name].ticks.items())]

    def due(self, name: str) -> datetime | None:
        """When it is due next; None: never, or later than anybody here looks."""
        return self._schedules[name].due

    def put(self, rule: Rule, now: datetime) -> None:
        """A schedule is made, or changed. Only with another timing does it start over."""
        old = self._schedules.get(rule.name)
        if old and (old.rule.when, old.rule.tz) == (rule.when, rule.tz):
            old.rule = rule
            return
        new = _Schedule(rule, self._times(rule), None)
        if old:
            new.ticks, new.paused = old.ticks, old.paused
        if not new.paused:
            new.due = new.after(now)
        self._schedules[rule.name] = new

    def pause(self, name: str) -> None:
        schedule = self._schedules[name]
        schedule.due, schedule.paused = None, True

    def resume(self, name: str, now: datetime) -> None:
        """What was due while it rested is not made up for."""
        schedule = self._schedules[name]
        if schedule.paused:
            schedule.due, schedule.paused = schedule.after(now), False

    def trigger(self, name: str, now: datetime) -> None:
        """By hand: it runs, whatever else does."""
        self._schedules[name].ticks[now] = Tick(now, now, triggered=True, fate="live")

    def rewind(self, now: datetime) -> None:
        """The clock was set back: each goes on from there, and what is on record is not fired again."""
        for schedule in self._schedules.values():
            following = schedule.after(now)
            # Where no tick follows within the time that this knows, what is due lies before.
            late = schedule.due is not None and (following is None or schedule.due <= following)
            if not schedule.paused and not late:
                schedule.due = following

    def tick(self, now: datetime) -> None:
        """Somebody is there, and sees to all that is due."""
        for schedule in self._schedules.values():
            if schedule.due is not None and schedule.due <= now:
                self._fire(schedule, schedule.due, now)
                schedule.due = schedule.after(now)

    def end(self, queues: Collection[str]) -> None:
        """All that was enqueued in these queues has run."""
        for schedule in self._schedules.values():
            if schedule.rule.queue in queues:
                for tick in schedule.live:
                    tick.fate = "succeeded"

    def _fire(self, schedule: _Schedule, due: datetime, now: datetime) -> None:
        rule = schedule.rule
        most = rule.catchup if isinstance(rule.catchup, int) else 1
        together = [at for at in schedule.times if due <= at <= now][-most:]
        live = schedule.live
        for at in together:
            if at in schedule.ticks:
                continue  # the clock was set back, and comes by here again
            tick = schedule.ticks[at] = Tick(at, now)
            if rule.catchup == "skip" and now - at > timedelta(minutes=1):
                tick.skipped = "missed"
            elif (rule.overlap == "skip" and live) or (rule.overlap == "replace" and at != together[-1]):
                tick.skipped = "overlap"
            else:
                tick.fate = "live"
                if rule.overlap == "replace":
                    for other in live:
                        other.fate = "cancelled"

    def _times(self, rule: Rule) -> list[datetime]:
        if isinstance(rule.when, str):
            text = NICKNAMES.get(rule.when, rule.when)
            return cron_oracle.due(text, rule.tz or "UTC", self._start, self._end)
        first = (self._start - EPOCH) // timedelta(seconds=rule.when) + 1
        last = (self._end - EPOCH) // timedelta(seconds=rule.when)
        return [EPOCH + n * timedelta(seconds=rule.when) for n in range(first, last + 1)]
