"""Admit blocked jobs when their limits and rates have room.

The end of a run admits the next jobs of its own keys. This loop does so for jobs that were enqueued, woken or retried,
for keys that another transaction had locked, and after a change of a limit.
"""

from __future__ import annotations

import asyncio

from stepwell.postgres import queries
from stepwell.worker.alarm import Alarm
from stepwell.worker.duty_runner import DutyRunner
from stepwell.worker.upkeep.leadership import Leadership

# Beyond this many keys, a look at all lines is cheaper.
_MOST_KEYS = 5000
_AT_ONCE = 500


class Admitter:
    """Sleeps until it hears of blocked jobs, and admits those that have room. Now and then it looks at all lines."""

    def __init__(self, duties: DutyRunner, leadership: Leadership) -> None:
        self._duties = duties
        self._leadership = leadership
        self._alarm = Alarm()
        self._keys: dict[str, None] = {}
        self._all = True

    def blocked(self, keys: list[str]) -> None:
        """Jobs wait in the lines of these keys; an empty list: in any line."""
        self._keys.update(dict.fromkeys(keys))
        self._all = self._all or not keys or len(self._keys) > _MOST_KEYS
        self._alarm.ring_in(self._leadership.behind)

    async def run(self) -> None:
        while True:
            if self._all:
                keys, self._all = None, False
                self._keys.clear()
            else:
                keys = list(self._keys)[:_AT_ONCE]
                for key in keys:
                    del self._keys[key]
            if keys is None or keys:
                done = await self._duties.do("admitting blocked jobs", queries.upkeep.admit_keys(keys))
                if done is None:
                    self._all = True
                    await asyncio.sleep(0.5)
                    continue
                # There are more lines than one call looks at.
                self._all = self._all or (keys is None and done[0].admitted > 0)
            if not self._keys and not self._all:
                nap = self._leadership.longest_nap
                woken = await self._alarm.nap(nap + self._leadership.behind)
                self._all = self._all or not woken
