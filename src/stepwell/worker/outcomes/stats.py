"""Count in memory how runs ended, and write the sums every ten seconds: counting then adds no write to a job."""

from __future__ import annotations

import asyncio
from dataclasses import fields

from stepwell.postgres import queries
from stepwell.postgres.queries.outcomes import Sums
from stepwell.values.job import ClaimedJob
from stepwell.worker.duty_runner import DutyRunner

_EVERY = 10.0
_SUMMED = [field.name for field in fields(Sums) if field.name not in ("task", "queue")]


class Stats:
    """The counters of one worker. Counts not yet written are lost if it is killed: they are for monitoring only."""

    def __init__(self, duties: DutyRunner) -> None:
        self._duties = duties
        self._sums: dict[tuple[str, str], Sums] = {}

    def count(self, job: ClaimedJob, counter: str, seconds: float) -> None:
        """Count a run whose outcome was written, or refused. `outcome_table` says which counter that is."""
        key = (job.task, job.queue)
        sums = self._sums.get(key)
        if sums is None:
            sums = self._sums[key] = Sums(job.task, job.queue)
        sums.seconds += seconds
        setattr(sums, counter, getattr(sums, counter) + 1)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            await self.write()

    async def write(self) -> None:
        """Write the counts since the last time. Counts that cannot be written are kept."""
        unwritten, self._sums = list(self._sums.values()), {}
        if unwritten and await self._duties.do("writing statistics", queries.outcomes.add_stats(unwritten)) is None:
            for sums in unwritten:
                since = self._sums.setdefault((sums.task, sums.queue), Sums(sums.task, sums.queue))
                for name in _SUMMED:
                    setattr(since, name, getattr(since, name) + getattr(sums, name))
