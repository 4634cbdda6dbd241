"""Work off bulk operations, chunk by chunk.

A chunk is one call, which decides by itself which operation is next. The pause after each chunk is in the database, and
holds for all workers together. So the leader does nearly all of it, and any other worker goes on if it does not.
"""

from __future__ import annotations

import asyncio

from stepwell.postgres import queries
from stepwell.worker.alarm import Alarm
from stepwell.worker.duty_runner import DutyRunner
from stepwell.worker.upkeep.leadership import Leadership

# A worker that does not lead leaves an operation alone that another one has worked on in these seconds.
_IDLE = 2.0
_SHORTEST_NAP = 0.005


class BulkRunner:
    """Sleeps until it hears of a bulk operation, and works it off."""

    def __init__(self, duties: DutyRunner, leadership: Leadership) -> None:
        self._duties = duties
        self._leadership = leadership
        self._alarm = Alarm()

    def look(self) -> None:
        """Look now: an operation was started, or notifications may have been missed."""
        self._alarm.ring_in(self._leadership.behind)

    async def run(self) -> None:
        while True:
            idle = 0.0 if self._leadership.leads else _IDLE
            done = await self._duties.do("working off bulk operations", queries.bulk.chunk(None, idle))
            if done is None:
                await asyncio.sleep(0.5)
                continue
            next_in, longest = done[0].next_in, self._leadership.rare_nap
            await self._alarm.nap(longest if next_in is None else min(max(next_in, _SHORTEST_NAP), longest))
