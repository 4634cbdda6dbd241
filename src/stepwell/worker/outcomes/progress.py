"""The progress that running jobs report. Only the last report of a job counts, and no outcome waits for it."""

from __future__ import annotations

import asyncio

import psycopg

from stepwell.postgres import queries
from stepwell.postgres.errors import in_short
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.worker import UpkeepFailed
from stepwell.values.job import ClaimedJob
from stepwell.worker.locks import Locks
from stepwell.worker.worker_connection import WorkerConnection

_EVERY = 0.25
_LOCK_PATIENCE = 0.05
_QUIET = 2.0


class Progress:
    """Reports not yet written. They go over the connection of the outcomes."""

    def __init__(self, connection: WorkerConnection, locks: Locks, events: EventBus) -> None:
        self._connection = connection
        self._locks = locks
        self._events = events
        self._reports: dict[str, tuple[int, str]] = {}
        self._quiet_until: dict[str, float] = {}
        self._next_at = 0.0

    def report(self, job: ClaimedJob, text: str) -> None:
        self._reports[job.id] = (job.epoch, text)

    async def flush(self) -> float | None:
        """Write the reports, unless they were written a moment ago. Returns when to call again; None: no need."""
        now = asyncio.get_running_loop().time()
        if self._reports and now >= self._next_at:
            self._next_at = now + _EVERY
            await self._write(now)
        return self._next_at if self._reports else None

    async def _write(self, now: float) -> None:
        due = {job_id: report for job_id, report in self._reports.items() if self._quiet_until.get(job_id, now) <= now}
        self._reports = {job_id: report for job_id, report in self._reports.items() if job_id not in due}
        if not due:
            return
        query = queries.outcomes.report_progress(
            list(due), [epoch for epoch, _ in due.values()], [text for _, text in due.values()]
        )
        try:
            await self._connection.insist(queries.locks.bounded(query, _LOCK_PATIENCE), waits_for_locks=False)
        except psycopg.errors.LockNotAvailable:
            # Leave locked jobs alone for a while: outcomes go over this connection, too.
            locked = await self._locks.find(due, with_family=False)
            self._quiet_until |= dict.fromkeys(due if locked is None else locked, now + _QUIET)
            self._reports = due | self._reports
        except psycopg.Error as error:
            # Progress is for people to look at: outcomes must not wait for it.
            self._events.emit(UpkeepFailed("writing progress", in_short(error)))
        else:
            for job_id in due:
                self._quiet_until.pop(job_id, None)
