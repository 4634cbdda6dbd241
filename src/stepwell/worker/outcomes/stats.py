"""Count how runs ended, in memory, and write the sums now and then: a counter in the database costs a job nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stepwell.postgres import queries
from stepwell.postgres.queries.stats import Sums
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import (
    Advanced,
    Cancelled,
    Failed,
    HandedBack,
    Misfit,
    Outcome,
    Restarted,
    Settled,
    Snoozed,
    Succeeded,
    Suspended,
    Undone,
)
from stepwell.worker.upkeep.duty import Duties

_EVERY = 10.0
_REFUSED = "refused"

# Which counter of `Sums` counts which outcome. What is settled was written in the handler's own transaction.
COUNTERS: dict[type[Outcome], str] = {
    Succeeded: "succeeded",
    Settled: "succeeded",
    Failed: "failed",
    Cancelled: "cancelled",
    HandedBack: "handed_back",
    Misfit: "handed_back",
    Suspended: "suspended",
    Snoozed: "snoozed",
    Advanced: "advanced",
    Restarted: "restarted",
    Undone: "undone",
}
_ADDED = sorted({"seconds", _REFUSED, *COUNTERS.values()})


class Stats:
    """The counters of one worker. What is counted when it is killed is lost: they are for looking, not for money."""

    def __init__(self, duties: Duties) -> None:
        self._duties = duties
        self._sums: dict[tuple[str, str], Sums] = {}

    def count(self, job: ClaimedJob, outcome: Outcome | None, seconds: float) -> None:
        """One run has ended, and how it ended is written. None: it was refused, as the job was no longer this run's."""
        key = (job.task, job.queue)
        sums = self._sums.get(key)
        if sums is None:
            sums = self._sums[key] = Sums(job.task, job.queue)
        sums.seconds += seconds
        if isinstance(outcome, Succeeded):
            sums.succeeded += 1
        else:
            moved_on = isinstance(outcome, Settled) and outcome.moved_on
            counter = _REFUSED if outcome is None else "advanced" if moved_on else COUNTERS[type(outcome)]
            setattr(sums, counter, getattr(sums, counter) + 1)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            await self.write()

    async def write(self) -> None:
        """Write what was counted since the last time; what cannot be written is kept."""
        sums, self._sums = self._sums, {}
        if sums and await self._duties.do("writing statistics", queries.stats.add_stats(list(sums.values()))) is None:
            self._put_back(list(sums.values()))

    def _put_back(self, unwritten: Sequence[Sums]) -> None:
        for sums in unwritten:
            since = self._sums.setdefault((sums.task, sums.queue), Sums(sums.task, sums.queue))
            for counter in _ADDED:
                setattr(since, counter, getattr(since, counter) + getattr(sums, counter))
