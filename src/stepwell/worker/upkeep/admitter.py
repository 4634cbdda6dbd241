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

# Few: while a call admits jobs, the ends of other jobs with the same keys wait for it.
_AT_ONCE = 100
# A look at so many lines costs little.
_FEW_LINES = 500


class Admitter:
    """Sleeps until it hears of blocked jobs, and admits those that have room. Now and then it looks at all lines."""

    def __init__(self, duties: DutyRunner, leadership: Leadership) -> None:
        self._duties = duties
        self._leadership = leadership
        self._alarm = Alarm()
        self._keys: dict[str, None] = {}
        self._look_at_all = True
        self._at_once = _AT_ONCE
        self._lines = 0

    def blocked(self, keys: list[str]) -> None:
        """Jobs wait in the lines of these keys; an empty list: in any line."""
        self._keys.update(dict.fromkeys(keys))
        self._look_at_all = self._look_at_all or not keys
        self._lines = max(1, self._lines)
        self._alarm.ring_in(self._leadership.behind)

    async def run(self) -> None:
        while True:
            if self._look_at_all:
                self._look_at_all = False
                await self._add_all_lines()
            while self._keys:
                await self._admit_some()
            rung = await self._alarm.nap(self._longest_nap() + self._leadership.behind)
            self._look_at_all = self._look_at_all or not rung

    def _longest_nap(self) -> float:
        """A job that a transaction had locked when its turn came, and that rolled back, waits for the next look at all
        lines."""
        if self._leadership.leads and 0 < self._lines <= _FEW_LINES:
            return self._leadership.longest_nap
        return self._leadership.rare_nap

    async def _admit_some(self) -> None:
        keys = list(self._keys)[: self._at_once]
        for key in keys:
            del self._keys[key]
        if await self._duties.do("admitting blocked jobs", queries.upkeep.admit_keys(keys)) is not None:
            self._at_once = min(_AT_ONCE, self._at_once * 2)
            return
        # One key may have failed the call. The next calls have fewer keys, so that it does not hold up the others, and
        # these keys come last.
        self._at_once = max(1, self._at_once // 2)
        self.blocked(keys)
        await asyncio.sleep(0.5)

    async def _add_all_lines(self) -> None:
        after: str | None = None
        self._lines = 0
        while found := await self._duties.do("looking for blocked jobs", queries.upkeep.lines(after)):
            if not found[0]:
                return
            self._keys.update(dict.fromkeys(found[0]))
            self._lines += len(found[0])
            after = found[0][-1]
