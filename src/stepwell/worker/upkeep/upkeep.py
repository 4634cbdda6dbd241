"""What one worker does for all: the leader promotes due jobs, rescues those of dead workers, and keeps the tables tidy.

No job waits for a leader. Every duty is idempotent and safe to do twice at once; what must not wait, the others do as
well, a little later, should it not have been done by then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from stepwell.postgres import queries
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.fleet import Rescued
from stepwell.telemetry.events import Events, JobBroken, JobsRescued, LeaderChanged, RescuedJobFailed, SchedulesRemoved
from stepwell.worker.alarm import Alarm
from stepwell.worker.upkeep.duty import Duties
from stepwell.worker.upkeep.pruning import Pruning
from stepwell.worker.upkeep.walks import pause_after

# A little more than the patience of stepwell.rescue_jobs, so that its second look at a silent worker is the last.
_ROUND = 1.1
_LEADER_LEASE = 5.0
_AGAIN = 5.0
_REWIND_EVERY = 20.0
_RESCUING = "rescuing"
_LONGEST_NAP = 10.0
_LONGEST_NAP_IF_DEAF = 1.0
_SHORTEST_NAP = 0.002
_LOOK_BACK = 60.0
# Those that do not lead look so much later than the leader: enough that they find nothing to do while it lives.
_BEHIND = 0.5
# The other duties of the leader wait for this; none of them may be late by much more than their round.
_PRUNES_FOR = 0.5


@dataclass(slots=True)
class _Chore:
    """Something that the leader does now and then; or everyone, if each has something of its own to see to."""

    name: str
    every: float
    query: Callable[[], Query[Any]]
    found: Callable[[list[Any]], object] = lambda _: None
    """Told the rows that came of it."""
    everyone: bool = False
    at: float = 0.0


class Upkeep:
    """Finds out who leads, and does what there is to do."""

    def __init__(
        self,
        due: Duties,
        house: Duties,
        keeps: Sequence[float],
        events: Events,
        worker_id: Callable[[], str | None],
        promoted: Callable[[], None],
        elected: Callable[[], None],
        rewind: Callable[[], Awaitable[None]],
    ) -> None:
        self._due = due
        self._house = house
        self._events = events
        self._worker_id = worker_id
        self._promoted = promoted
        self._elected = elected
        self._rewind = rewind
        self._rewind_at = 0.0
        self._alarm = Alarm()
        self._deaf = False
        self.leads = False
        self._chores = [
            _Chore("rescuing jobs of unregistered workers", 600, queries.fleet.rescue_unregistered, self._rescued),
            _Chore("admitting stranded runs", 30, queries.upkeep.admit_stranded),
            _Chore("removing stale schedules", 30, queries.schedules.remove_stale_schedules, self._removed),
            # The leader may be of another app, or another version of this one, that keeps nothing for as long.
            _Chore("making partitions", 600, lambda: queries.upkeep.make_partitions(keeps), everyone=True),
            _Chore("dropping expired partitions", 600, queries.upkeep.prune),
        ]
        self._prunings = [
            Pruning("deleting expired large values", 60, partial(queries.upkeep.prune_rows, "large_value")),
            Pruning("deleting expired history", 600, partial(queries.upkeep.prune_rows, "history_default")),
            Pruning("deleting expired failures", 600, partial(queries.upkeep.prune_rows, "failure_default")),
            Pruning("forgetting expired events", 60, queries.upkeep.prune_events),
            Pruning("forgetting signals of jobs that have ended", 600, queries.upkeep.prune_signals),
            Pruning("forgetting old ticks", 600, queries.upkeep.prune_ticks),
            Pruning("forgetting old statistics", 600, queries.upkeep.prune_stats),
        ]

    @property
    def behind(self) -> float:
        """How much later than the leader this worker looks, in seconds."""
        return 0.0 if self.leads else _BEHIND * random.uniform(1, 1.5)  # noqa: S311

    @property
    def longest_nap(self) -> float:
        """How long to wait at most when nothing is known to be due."""
        return _LONGEST_NAP_IF_DEAF if self._deaf else _LONGEST_NAP

    def due(self, seconds: float) -> None:
        """Something will be due in so many seconds."""
        self._alarm.ring_in(seconds + self.behind)

    def set_deaf(self, deaf: bool) -> None:
        """Look more often, because no notification arrives, or as usual."""
        self._deaf = deaf
        self._alarm.ring_in(0)

    async def promote(self) -> None:
        """Make due jobs ready at their time, until cancelled."""
        loop = asyncio.get_running_loop()
        walk_at = 0.0
        while True:
            # Nearly all jobs become due after the last look. The others were put in by a transaction that took long.
            walks = loop.time() >= walk_at
            done = await self._due.do("promoting due jobs", queries.upkeep.promote(since=None if walks else _LOOK_BACK))
            if done is None:
                await asyncio.sleep(0.5)
                continue
            promoted = done[0]
            if walks:
                walk_at = loop.time() + pause_after(promoted.walk_seconds)
            for job_id, why in zip(promoted.failed, promoted.why, strict=True):
                self._events.emit(JobBroken(str(job_id), why))
            nap = self.longest_nap if walks else min(self.longest_nap, max(0.0, walk_at - loop.time()))
            if promoted.next_due is not None:
                nap = min(nap, promoted.next_due)
            if promoted.count:
                self._promoted()
            else:
                # What is due is being promoted by somebody else: do not race them in circles.
                nap = max(nap, _SHORTEST_NAP)
            if nap > 0:
                await self._alarm.nap(nap + self.behind)

    async def keep_house(self) -> None:
        """Lead, if nobody else does, and do the leader's chores, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._lead()
            for chore in self._chores:
                if (self.leads or chore.everyone) and loop.time() >= chore.at:
                    began = loop.time()
                    done = await self._house.do(chore.name, chore.query())
                    if done:
                        chore.found(done)
                    pause = max(chore.every, pause_after(loop.time() - began))
                    chore.at = loop.time() + (pause if done is not None else min(chore.every, _AGAIN))
            until = loop.time() + _PRUNES_FOR
            for pruning in self._prunings:
                if self.leads and loop.time() >= pruning.at:
                    await pruning.do(self._house, until)
            if self.leads and loop.time() >= self._rewind_at:
                await self._rewind()
                self._rewind_at = loop.time() + _REWIND_EVERY
            await asyncio.sleep(_ROUND * random.uniform(1.0, 1.1))  # noqa: S311

    async def _lead(self) -> None:
        leads = False
        worker_id = self._worker_id()
        if worker_id is not None:
            led = await self._house.do("leading and rescuing", queries.fleet.lead_and_rescue(worker_id, _LEADER_LEASE))
            if led:
                leads = led[-1].leads
                self._rescued([each.rescued for each in led if each.rescued is not None])
                if (why := led[-1].why) is None:
                    self._house.recovered(_RESCUING)
                else:
                    self._house.failed(_RESCUING, why)
            else:
                # The other duties must not end with that one.
                found = await self._house.do("looking who leads", queries.fleet.lead(worker_id, _LEADER_LEASE))
                leads = bool(found and found[0])
        if leads != self.leads:
            self.leads = leads
            self._events.emit(LeaderChanged(leads))
            if leads:
                for duty in (*self._chores, *self._prunings):
                    duty.at = 0.0
                self._alarm.ring_in(0)
                self._elected()

    def _rescued(self, jobs: list[Rescued]) -> None:
        if jobs:
            self._events.emit(JobsRescued(len(jobs)))
        for job in jobs:
            if job.failed:
                self._events.emit(RescuedJobFailed(job.job_id, job.task, job.message))

    def _removed(self, found: list[list[str]]) -> None:
        [names] = found
        if names:
            self._events.emit(SchedulesRemoved(tuple(names)))
