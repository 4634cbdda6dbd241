"""Fire schedules at their times.

Any worker reckons the ticks; the database decides whether they count, so it does not matter who does, or how many do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import datetime, timedelta

from stepwell import queries
from stepwell.cron import ticks
from stepwell.schedule import DueSchedule
from stepwell.worker.alarm import Alarm
from stepwell.worker.duty import Duties

_SHORTEST_NAP = 0.002
# One call of tick takes no other schedule once it has so many ticks.
_MOST_TICKS = 2000
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
        while True:
            self._left = {left: until for left, until in self._left.items() if until > loop.time()}
            found = await self._duties.do("looking for due schedules", queries.due_schedules(list(self._left)))
            if found is None:
                await asyncio.sleep(0.5)
                continue
            due = [schedule for schedule in found if schedule.due_in is not None and schedule.due_in <= 0]
            if due:
                await self._fire(due)
                nap = 0.0
            else:
                nap = min([self._longest_nap(), *(schedule.due_in or 0.0 for schedule in found[:1])])
            if self._left:
                nap = min(nap, max(0.0, min(self._left.values()) - loop.time()))
            # Somebody else may be firing what is due: do not race them in circles.
            await self._alarm.nap(max(nap + self._behind(), _SHORTEST_NAP))

    async def _fire(self, due: list[DueSchedule]) -> None:
        batch: list[DueSchedule] = []
        nexts: list[datetime | None] = []
        reckoned: list[list[datetime]] = []
        for schedule in due:
            if sum(map(len, reckoned)) >= _MOST_TICKS:
                break
            try:
                times, following = reckon(schedule)
            except Exception as error:  # a zone that this machine does not know, or one that it knows differently
                self._leave(schedule.id, schedule.name, str(error))
                continue
            batch.append(schedule)
            nexts.append(following)
            reckoned.append(times)
            await asyncio.sleep(0)  # to reckon takes a while: others want the loop, too
        if not batch:
            return
        fired = await self._duties.do("firing schedules", queries.tick(batch, nexts, reckoned))
        if fired is None:
            await asyncio.sleep(0.5)
            return
        left = dict(zip(fired[0].left_ids, fired[0].left_why, strict=True))
        for schedule in batch:
            if schedule.id in left:
                self._leave(schedule.id, schedule.name, left[schedule.id])
            else:
                self._duties.recovered(_duty(schedule.name))

    def _leave(self, schedule_id: str, name: str, why: str | None) -> None:
        """Look at the others first. That somebody holds it is no trouble: they fire it, or change it."""
        now = asyncio.get_running_loop().time()
        self._left[schedule_id] = now + (_BUSY_FOR if why is None else _LEAVE_FOR)
        if why is not None:
            self._duties.failed(_duty(name), why)

    async def rewind(self) -> None:
        """Mend schedules that were reckoned while the clock was ahead: they would rest until it is there again."""
        after: str | None = None
        while page := await self._duties.do("looking for stranded schedules", queries.schedule_times(after)):
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
                await self._duties.do("mending stranded schedules", queries.rewind_schedules(wrong, nexts))


def reckon(schedule: DueSchedule) -> tuple[list[datetime], datetime | None]:
    """The ticks of a due schedule that may count, oldest first, and the one to come."""
    timing = schedule.timing
    assert schedule.due_at is not None
    before = schedule.due_at - timedelta(microseconds=1)
    return ticks(timing, before, schedule.looked_at, max(1, schedule.catchup)), timing.after(schedule.looked_at)


def rewound(schedule: DueSchedule) -> datetime | None:
    """When a schedule should be due, if its next tick lies beyond that, or there is none; None: all is well."""
    following = schedule.timing.after(schedule.looked_at)
    return following if following is not None and (schedule.due_at is None or schedule.due_at > following) else None


def _duty(name: str) -> str:
    return f"firing schedule {name!r}"
