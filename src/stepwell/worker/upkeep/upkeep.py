"""Elect the leader, and do its duties: rescue the jobs of dead workers, and keep the tables tidy."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial

from stepwell.postgres import queries
from stepwell.postgres.queries.fleet import Rescued
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.jobs import JobsRescued, RescuedJobFailed
from stepwell.telemetry.worker import LeaderChanged, SchedulesRemoved
from stepwell.worker.duty_runner import DutyRunner
from stepwell.worker.upkeep.duty import Duty, PruneDuty
from stepwell.worker.upkeep.leadership import Leadership
from stepwell.worker.upkeep.promoter import Promoter
from stepwell.worker.upkeep.ticker import Ticker

# A little more than the patience of stepwell.rescue_jobs, so that its second look at a silent worker is the last.
_ROUND = 1.1
_LEADER_LEASE = 5.0
_REWIND_EVERY = 20.0
_RESCUING = "rescuing"
# The leader's other duties wait while it prunes. None of them may be late by much more than a round.
_PRUNES_FOR = 0.5


class Upkeep:
    """Finds out whether this worker leads, and does its duties. `keeps`: how many seconds ended jobs are kept."""

    def __init__(
        self,
        duties: DutyRunner,
        leadership: Leadership,
        promoter: Promoter,
        ticker: Ticker,
        keeps: Sequence[float],
        events: EventBus,
        worker_id: Callable[[], str | None],
    ) -> None:
        self._runner = duties
        self._leadership = leadership
        self._promoter = promoter
        self._ticker = ticker
        self._events = events
        self._worker_id = worker_id
        self._rewind_at = 0.0
        self._duties = [
            Duty("rescuing jobs of unregistered workers", 600, queries.fleet.rescue_unregistered, self._rescued),
            Duty("admitting stranded runs", 30, queries.upkeep.admit_stranded),
            Duty("returning stray permits", 60, queries.upkeep.return_stray_permits),
            Duty("removing stale schedules", 30, queries.schedules.remove_stale_schedules, self._removed),
            # Every worker does this: the leader may run another app or version, which keeps jobs less long.
            Duty("making partitions", 600, lambda: queries.upkeep.make_partitions(keeps), everyone=True),
            Duty("dropping expired partitions", 600, queries.upkeep.prune),
        ]
        self._prune_duties = [
            PruneDuty("deleting expired large values", 60, partial(queries.upkeep.prune_rows, "large_value")),
            PruneDuty("deleting expired history", 600, partial(queries.upkeep.prune_rows, "history_default")),
            PruneDuty("deleting expired failures", 600, partial(queries.upkeep.prune_rows, "failure_default")),
            PruneDuty("deleting expired unique keys", 60, queries.upkeep.prune_keys),
            PruneDuty("deleting expired events", 60, queries.upkeep.prune_events),
            PruneDuty("deleting signals of jobs that have ended", 600, queries.upkeep.prune_signals),
            PruneDuty("deleting expired groups", 600, queries.upkeep.prune_groups),
            PruneDuty("deleting old ticks", 600, queries.upkeep.prune_ticks),
            PruneDuty("deleting old statistics", 600, queries.upkeep.prune_stats),
        ]

    async def run(self) -> None:
        """Lead, if no other worker does, and do the leader's duties, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._lead()
            for duty in self._duties:
                if (self._leadership.leads or duty.everyone) and loop.time() >= duty.at:
                    await duty.do(self._runner)
            until = loop.time() + _PRUNES_FOR
            for duty in self._prune_duties:
                if self._leadership.leads and loop.time() >= duty.at:
                    await duty.do(self._runner, until)
            if self._leadership.leads and loop.time() >= self._rewind_at:
                await self._ticker.rewind()
                self._rewind_at = loop.time() + _REWIND_EVERY
            await asyncio.sleep(_ROUND * random.uniform(1.0, 1.1))  # noqa: S311

    async def _lead(self) -> None:
        leads = False
        worker_id = self._worker_id()
        if worker_id is not None:
            led = await self._runner.do("leading and rescuing", queries.fleet.lead_and_rescue(worker_id, _LEADER_LEASE))
            if led:
                leads = led[-1].leads
                self._rescued([each.rescued for each in led if each.rescued is not None])
                if (error := led[-1].why) is None:
                    self._runner.recovered(_RESCUING)
                else:
                    self._runner.failed(_RESCUING, error)
            else:
                # The other duties must go on when that one fails.
                found = await self._runner.do("electing the leader", queries.fleet.lead(worker_id, _LEADER_LEASE))
                leads = bool(found and found[0])
        if leads != self._leadership.leads:
            self._leadership.leads = leads
            self._events.emit(LeaderChanged(leads))
            if leads:
                for duty in (*self._duties, *self._prune_duties):
                    duty.at = 0.0
                self._promoter.look()
                self._ticker.look()

    def _rescued(self, jobs: list[Rescued]) -> None:
        if jobs:
            self._events.emit(JobsRescued(len(jobs)))
        for job in jobs:
            if job.failed:
                self._events.emit(RescuedJobFailed(job.job_id, job.task, job.queue, job.attempt, job.message))

    def _removed(self, found: list[list[str]]) -> None:
        [names] = found
        if names:
            self._events.emit(SchedulesRemoved(tuple(names)))
