"""Count in memory how runs ended, how long they had waited and how long they took. Write the sums every ten seconds:
counting then adds no write to a job. Announce the jobs of retired tasks that were ended, which would fill the log one
by one."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from stepwell.postgres import queries
from stepwell.postgres.queries.outcomes import Sums
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.worker import RetiredDrained
from stepwell.values.histogram import bin_of
from stepwell.values.outcome import Outcome
from stepwell.worker.duty_runner import DutyRunner
from stepwell.worker.outcomes.outcome_table import REFUSED, TABLE, EndedRun
from stepwell.worker.waited import waited_at

_EVERY = 10.0


class Stats:
    """The counters of one worker. Counts not yet written are lost if it is killed: they are for monitoring only."""

    def __init__(self, duties: DutyRunner, events: EventBus, retired: Iterable[str]) -> None:
        self._duties = duties
        self._events = events
        self._retired = frozenset(retired)
        self._retired_ended: Counter[str] = Counter()
        self._sums: dict[tuple[str, str], Sums] = {}
        self._to_clock = _to_clock()

    def count(self, runs: Sequence[EndedRun[Outcome]], counter: str | None = None) -> None:
        """Count runs whose outcomes were written, each by the counter that `outcome_table` names, or by this one."""
        # All that the runs of a batch share is looked up once: a batch has few tasks, queues and kinds of outcome.
        to_clock = self._to_clock
        name = queue = kind = sums = None
        column = counter or ""
        retired = fair = False
        for job, task, outcome, _, seconds, began in runs:
            if seconds is None:
                continue
            if sums is None or job.task != name or job.queue != queue:
                name, queue = job.task, job.queue
                sums = self._sums.get((name, queue))
                if sums is None:
                    sums = self._sums[name, queue] = Sums(name, queue)
                retired = name in self._retired
                fair = task.rules.fair is not None
            if counter is None and type(outcome) is not kind:
                kind = type(outcome)
                column = TABLE[kind].counter
            sums.seconds += seconds
            sums.runs[bin_of(seconds)] += 1
            # For a job without a fair key, the same without the call: this is done for every run.
            at = to_clock + began
            waited = waited_at(at, job, task) if fair else at - job.run_at / 1e6
            if waited is not None:
                sums.waits[bin_of(waited)] += 1
            setattr(sums, column, getattr(sums, column) + 1)
            if retired and column != REFUSED:
                self._retired_ended[job.task] += 1

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            await self.write()

    async def write(self) -> None:
        """Write the counts since the last time. Counts that cannot be written are kept."""
        self._to_clock = _to_clock()  # the machine's clock may have been set
        for task, count in sorted(self._retired_ended.items()):
            self._events.emit(RetiredDrained(task, count))
        self._retired_ended.clear()
        unwritten, self._sums = list(self._sums.values()), {}
        if unwritten and await self._duties.do("writing statistics", queries.outcomes.add_stats(unwritten)) is None:
            for sums in unwritten:
                self._sums.setdefault((sums.task, sums.queue), Sums(sums.task, sums.queue)).add(sums)


def _to_clock() -> float:
    """What to add to a time of `perf_counter` to get seconds since 1970."""
    return time.time() - time.perf_counter()
