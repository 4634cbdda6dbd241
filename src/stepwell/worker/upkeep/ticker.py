"""Fire schedules at their times.

Any worker may compute the ticks of a schedule. The database decides whether they count, so it does not matter which
worker does, or how many do.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import datetime, timedelta
from functools import lru_cache

from stepwell.calendar.schedule import DueSchedule
from stepwell.calendar.timing import Timing, ticks
from stepwell.postgres import queries
from stepwell.worker.alarm import Alarm
from stepwell.worker.duty_runner import DutyRunner
from stepwell.worker.upkeep.leadership import Leadership

_SHORTEST_NAP = 0.002
# How many schedules a look reads; and how many after a page that was due from beginning to end: thousands may be due at
# the same second.
_PAGE = 100
_LARGE_PAGE = 1000
# A call of tick takes no further schedule once it has this many ticks.
_MOST_TICKS = 2000
# Ticks are computed for this long before other tasks get the event loop.
_LONGEST_TURN = 0.005
# A schedule whose ticks could not be computed or fired is skipped for this long: another worker may do better.
_SKIP_FAILED = 5.0
# A schedule that another session has locked is skipped for this long.
_SKIP_LOCKED = 0.25


class Ticker:
    """Sleeps until the next schedule is due, and fires it."""

    def __init__(self, duties: DutyRunner, leadership: Leadership) -> None:
        self._duties = duties
        self._leadership = leadership
        self._alarm = Alarm()
        self._skipped: dict[str, float] = {}

    def look(self) -> None:
        """Look when the next schedule is due: a schedule has changed, or this worker leads from now on."""
        self._alarm.ring_in(self._leadership.behind)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        page = _PAGE
        while True:
            self._skipped = {skipped: until for skipped, until in self._skipped.items() if until > loop.time()}
            query = queries.schedules.due_schedules(list(self._skipped), page)
            found = await self._duties.do("looking for due schedules", query)
            if found is None:
                await asyncio.sleep(0.5)
                continue
            due = [schedule for schedule in found if schedule.due_in is not None and schedule.due_in <= 0]
            page = _LARGE_PAGE if len(due) == page else _PAGE
            if due:
                if await self._fire(due):
                    # Look again at once: there may be thousands more.
                    continue
                nap = 0.0
            else:
                nap = min([self._leadership.longest_nap, *(schedule.due_in or 0.0 for schedule in found[:1])])
            if self._skipped:
                nap = min(nap, max(0.0, min(self._skipped.values()) - loop.time()))
            # Another worker may be firing what is due: do not race it in circles.
            await self._alarm.nap(max(nap + self._leadership.behind, _SHORTEST_NAP))

    async def _fire(self, due: list[DueSchedule]) -> bool:
        """Fire due schedules. Returns whether any job was enqueued."""
        batch: list[DueSchedule] = []
        nexts: list[datetime | None] = []
        computed: list[list[datetime]] = []
        count = 0
        began = time.monotonic()
        for schedule in due:
            if count >= _MOST_TICKS:
                break
            if time.monotonic() > began + _LONGEST_TURN:
                await asyncio.sleep(0)
                began = time.monotonic()
            try:
                times, following = due_ticks(schedule)
            except Exception as error:  # a zone that this machine does not know, or knows differently
                self._skip(schedule.id, schedule.name, str(error))
                continue
            batch.append(schedule)
            nexts.append(following)
            computed.append(times)
            count += len(times)
        if not batch:
            return False
        fired = await self._duties.do("firing schedules", queries.schedules.tick(batch, nexts, computed))
        if fired is None:
            await asyncio.sleep(0.5)
            return False
        left = dict(zip(fired[0].left_ids, fired[0].left_why, strict=True))
        for schedule in batch:
            if schedule.id in left:
                self._skip(schedule.id, schedule.name, left[schedule.id])
            else:
                self._duties.recovered(_duty(schedule.name))
        return fired[0].enqueued > 0

    def _skip(self, schedule_id: str, name: str, error: str | None) -> None:
        """Look at other schedules first. `error` None: another session has locked this one, to fire or to change it."""
        now = asyncio.get_running_loop().time()
        self._skipped[schedule_id] = now + (_SKIP_LOCKED if error is None else _SKIP_FAILED)
        if error is not None:
            self._duties.failed(_duty(name), error)

    async def rewind(self) -> None:
        """Correct schedules whose next tick was computed while the clock was ahead: they would not fire until then."""
        after: str | None = None
        while page := await self._duties.do("looking for stranded schedules", queries.schedules.schedule_times(after)):
            after = page[-1].id
            wrong: list[DueSchedule] = []
            nexts: list[datetime] = []
            for schedule in page:
                with contextlib.suppress(Exception):  # `_fire` reports a schedule that cannot be computed
                    if (following := rewound(schedule)) is not None:
                        wrong.append(schedule)
                        nexts.append(following)
                await asyncio.sleep(0)
            if wrong:
                await self._duties.do("correcting stranded schedules", queries.schedules.rewind_schedules(wrong, nexts))


def due_ticks(schedule: DueSchedule) -> tuple[list[datetime], datetime | None]:
    """The ticks of a due schedule that may count, oldest first, and the next one to come."""
    assert schedule.due_at is not None
    times, following = _due_ticks(schedule.timing, schedule.due_at, schedule.looked_at, max(1, schedule.catchup))
    return list(times), following


@lru_cache(maxsize=1000)
def _due_ticks(
    timing: Timing, due_at: datetime, now: datetime, most: int
) -> tuple[tuple[datetime, ...], datetime | None]:
    """Cached: all schedules of one look that have the same timing have the same ticks."""
    before = due_at - timedelta(microseconds=1)
    first = timing.after(before)
    if first is None or first > now:
        return (), first
    second = timing.after(first)
    if second is None or second > now:
        return (first,), second
    # Some were missed.
    return tuple(ticks(timing, before, now, most)), timing.after(now)


def rewound(schedule: DueSchedule) -> datetime | None:
    """The next tick of a schedule whose stored next tick is later than that, or missing; None: it is right."""
    following = schedule.timing.after(schedule.looked_at)
    return following if following is not None and (schedule.due_at is None or schedule.due_at > following) else None


def _duty(name: str) -> str:
    return f"firing schedule {name!r}"
