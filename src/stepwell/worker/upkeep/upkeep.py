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
from stepwell.worker.upkeep.duty import BatchDuty, Duty
from stepwell.worker.upkeep.leadership import Leadership
from stepwell.worker.upkeep.promoter import Promoter
from stepwell.worker.upkeep.ticker import Ticker

# A little more than the patience of stepwell.rescue_jobs, so that its second look at a silent worker is the last.
_ROUND = 1.1
_LEADER_LEASE = 5.0
_REWIND_EVERY = 20.0
_RESCUING = "rescuing"
# The leader's other duties wait while it prunes and counts. None of them may be late by much more than a round.
_BATCHES_FOR = 0.5


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
        # Every worker does this: the leader may run another app or version, which keeps jobs less long.
        self._partitions = Duty("making partitions", 600, lambda: queries.upkeep.make_partitions(keeps), everyone=True)
        self._duties = [
            Duty("rescuing jobs of unregistered workers", 600, queries.fleet.rescue_unregistered, self._rescued),
            Duty("admitting stranded runs", 120, queries.upkeep.admit_stranded),
            Duty("returning stray permits", 120, queries.upkeep.return_stray_permits),
            Duty("removing stale schedules", 120, queries.schedules.remove_stale_schedules, self._removed),
            self._partitions,
            Duty("dropping expired partitions", 600, queries.upkeep.prune),
        ]
        self._batch_duties = [
            BatchDuty("deleting expired large values", 120, partial(queries.upkeep.prune_rows, "large_value")),
            BatchDuty("deleting expired history", 600, partial(queries.upkeep.prune_rows, "history_default")),
            BatchDuty("deleting expired failures", 600, partial(queries.upkeep.prune_rows, "failure_default")),
            BatchDuty("deleting expired unique keys", 120, queries.upkeep.prune_keys),
            BatchDuty("deleting expired events", 120, queries.upkeep.prune_events),
            BatchDuty("deleting signals of jobs that have ended", 600, queries.upkeep.prune_signals),
            BatchDuty("deleting logs of jobs that are no longer kept", 120, queries.upkeep.prune_logs),
            BatchDuty("deleting expired groups", 600, queries.upkeep.prune_groups),
            BatchDuty("deleting old bulk operations", 600, queries.upkeep.prune_bulks),
            BatchDuty("deleting old ticks", 600, queries.upkeep.prune_ticks),
            BatchDuty("deleting old statistics", 600, queries.upkeep.prune_stats),
            BatchDuty("deleting old groups of failures", 600, queries.upkeep.prune_failures),
            BatchDuty("deleting old records of acts", 600, queries.upkeep.prune_audit),
            # Pages add only the oldest of what is not counted yet.
            BatchDuty("counting failures", 15, queries.upkeep.fold_failures, limit=5_000),
            BatchDuty("counting enqueued jobs", 60, queries.upkeep.count_enqueued),
            BatchDuty("adding up statistics", 60, queries.upkeep.sum_stats, limit=50),
        ]

    async def prepare(self) -> None:
        """Make the partitions before the first job ends. Otherwise its row would move to its partition a moment later,
        and a statement that was being planned meanwhile would miss it."""
        await self._partitions.do(self._runner)

    async def run(self) -> None:
        """Lead, if no other worker does, and do the leader's duties, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._lead()
            for duty in self._duties:
                if (self._leadership.leads or duty.everyone) and loop.time() >= duty.at:
                    await duty.do(self._runner)
            until = loop.time() + _BATCHES_FOR
            for duty in self._batch_duties:
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
                for duty in (*self._duties, *self._batch_duties):
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
