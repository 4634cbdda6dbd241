"""Count how runs ended, in memory, and write the sums now and then: a counter in the database costs a job nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stepwell import queries
from stepwell.outcome import Cancelled, Failed, Misfit, Outcome, Settled, Snoozed, Succeeded
from stepwell.queries import Sums
from stepwell.worker.duty import Duties

_EVERY = 10.0


class Stats:
    """The counters of one worker. What is counted when it is killed is lost: they are for looking, not for money."""

    def __init__(self, duties: Duties) -> None:
        self._duties = duties
        self._sums: dict[tuple[str, str], Sums] = {}

    def count(self, task: str, queue: str, outcome: Outcome, seconds: float) -> None:
        """One run has ended."""
        key = (task, queue)
        sums = self._sums.get(key)
        if sums is None:
            sums = self._sums[key] = Sums(task, queue)
        sums.seconds += seconds
        if isinstance(outcome, Succeeded):
            sums.succeeded += 1
        elif isinstance(outcome, Failed):
            sums.failed += 1
        elif isinstance(outcome, Snoozed | Misfit):
            sums.handed_back += 1
        elif isinstance(outcome, Cancelled):
            sums.cancelled += 1
        elif isinstance(outcome, Settled) and outcome.committed:
            sums.succeeded += 1

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            await self.write()

    async def write(self) -> None:
        """Write what was counted since the last time; what cannot be written is kept."""
        sums, self._sums = self._sums, {}
        if sums and await self._duties.do("writing statistics", queries.add_stats(list(sums.values()))) is None:
            self._put_back(list(sums.values()))

    def _put_back(self, unwritten: Sequence[Sums]) -> None:
        for sums in unwritten:
            since = self._sums.setdefault((sums.task, sums.queue), Sums(sums.task, sums.queue))
            since.succeeded += sums.succeeded
            since.failed += sums.failed
            since.cancelled += sums.cancelled
            since.handed_back += sums.handed_back
            since.seconds += sums.seconds
