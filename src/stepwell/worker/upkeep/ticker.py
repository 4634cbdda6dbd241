"""Fire schedules at their times.

Any worker reckons the ticks; the database decides whether they count, so it does not matter who does, or how many do.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache

from stepwell.calendar.schedule import DueSchedule
from stepwell.calendar.timing import Timing, ticks
from stepwell.postgres import queries
from stepwell.worker.alarm import Alarm
from stepwell.worker.upkeep.duty import Duties

_SHORTEST_NAP = 0.002
# How many schedules are looked up at once; and how many after a page that was due from beginning to end: thousands may
# be due at the same second.
_PAGE = 100
_LARGE_PAGE = 1000
# One call of tick takes no other schedule once it has so many ticks.
_MOST_TICKS = 2000
# So long ticks are reckoned before others have the loop.
_LONGEST_TURN = 0.005
# A schedule that could not be reckoned or fired is left alone for so long: others may do better.
_LEAVE_FOR = 5.0
# And one that somebody else holds for so long.
_BUSY_FOR = 0.25


class Ticker:
    """Looks when the next schedule is due, and fires what is. `behind` and `longest_nap` are asked at each look."""

    def __init__(self, duties: Duties, behind: Callable[[], float], longest_nap: Callable[[], float]) -> None:
        self._duties = duties
        self._behind = behind
        self._longest_nap = longest_nap
        self._alarm = Alarm()
        self._left: dict[str, float] = {}

    def look(self) -> None:
        """Something has changed: look when the next is due."""
        self._alarm.ring_in(self._behind())

    async def run(self) -> None:
        """Fire schedules until cancelled."""
        loop = asyncio.get_running_loop()
        page = _PAGE
        while True:
            self._left = {left: until for left, until in self._left.items() if until > loop.time()}
            found = await self._duties.do(
                "looking for due schedules", queries.schedules.due_schedules(list(self._left), page)
            )
            if found is None:
                await asyncio.sleep(0.5)
                continue
            due = [schedule for schedule in found if schedule.due_in is not None and schedule.due_in <= 0]
            page = _LARGE_PAGE if len(due) == page else _PAGE
            if due:
                if await self._fire(due):
                    # Whoever fires goes on: there may be thousands more.
                    continue
                nap = 0.0
            else:
                nap = min([self._longest_nap(), *(schedule.due_in or 0.0 for schedule in found[:1])])
            if self._left:
                nap = min(nap, max(0.0, min(self._left.values()) - loop.time()))
            # Somebody else may be firing what is due: do not race them in circles.
            await self._alarm.nap(max(nap + self._behind(), _SHORTEST_NAP))

    async def _fire(self, due: list[DueSchedule]) -> bool:
        """Whether any job was enqueued."""
        batch: list[DueSchedule] = []
        nexts: list[datetime | None] = []
        reckoned: list[list[datetime]] = []
        count = 0
        began = time.monotonic()
        for schedule in due:
            if count >= _MOST_TICKS:
                break
            if time.monotonic() > began + _LONGEST_TURN:
                await asyncio.sleep(0)
                began = time.monotonic()
            try:
                times, following = reckon(schedule)
            except Exception as error:  # a zone that this machine does not know, or one that it knows differently
                self._leave(schedule.id, schedule.name, str(error))
                continue
            batch.append(schedule)
            nexts.append(following)
            reckoned.append(times)
            count += len(times)
        if not batch:
            return False
        fired = await self._duties.do("firing schedules", queries.schedules.tick(batch, nexts, reckoned))
        if fired is None:
            await asyncio.sleep(0.5)
            return False
        left = dict(zip(fired[0].left_ids, fired[0].left_why, strict=True))
        for schedule in batch:
            if schedule.id in left:
                self._leave(schedule.id, schedule.name, left[schedule.id])
            else:
                self._duties.recovered(_duty(schedule.name))
        return fired[0].enqueued > 0

    def _leave(self, schedule_id: str, name: str, why: str | None) -> None:
        """Look at the others first. That somebody holds it is no trouble: they fire it, or change it."""
        now = asyncio.get_running_loop().time()
        self._left[schedule_id] = now + (_BUSY_FOR if why is None else _LEAVE_FOR)
        if why is not None:
            self._duties.failed(_duty(name), why)

    async def rewind(self) -> None:
        """Mend schedules that were reckoned while the clock was ahead: they would rest until it is there again."""
        after: str | None = None
        while page := await self._duties.do("looking for stranded schedules", queries.schedules.schedule_times(after)):
            after = page[-1].id
            wrong: list[DueSchedule] = []
            nexts: list[datetime] = []
            for schedule in page:
                with contextlib.suppress(Exception):  # what cannot be reckoned is said where it is due
                    if (following := rewound(schedule)) is not None:
                        wrong.append(schedule)
                        nexts.append(following)
                await asyncio.sleep(0)
            if wrong:
                await self._duties.do("mending stranded schedules", queries.schedules.rewind_schedules(wrong, nexts))


def reckon(schedule: DueSchedule) -> tuple[list[datetime], datetime | None]:
    """The ticks of a due schedule that may count, oldest first, and the one to come."""
    assert schedule.due_at is not None
    times, following = _reckon(schedule.timing, schedule.due_at, schedule.looked_at, max(1, schedule.catchup))
    return list(times), following


@lru_cache(maxsize=1000)
def _reckon(timing: Timing, due_at: datetime, now: datetime, most: int) -> tuple[tuple[datetime, ...], datetime | None]:
    """The same for all schedules of one look that have the same timing."""
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
    """When a schedule should be due, if its next tick lies beyond that, or there is none; None: all is well."""
    following = schedule.timing.after(schedule.looked_at)
    return following if following is not None and (schedule.due_at is None or schedule.due_at > following) else None


def _duty(name: str) -> str:
    return f"firing schedule {name!r}"
