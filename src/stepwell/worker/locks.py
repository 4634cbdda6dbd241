"""Jobs that other sessions have locked: find them, set their writes aside, and log which session holds the lock.

A write that meets a lock is set aside, so that it does not hold up other jobs. After a pause, which grows, the worker
reads whether the job is still locked, without waiting for the lock, and writes once it is free.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import psycopg

from stepwell.postgres import queries
from stepwell.postgres.queries.locks import Holder
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.jobs import JobLocked
from stepwell.worker.worker_connection import WorkerConnection

_PATIENCE = 0.5
# While a job is set aside, the same session may have locked others: a lock is no longer a rare coincidence.
_LESS_PATIENCE = 0.1
_FIRST_PAUSE = 0.125
_LONGEST_PAUSE = 2.0


class Locks:
    """The jobs whose writes were set aside. `what` names the writes in the log: "outcome" or "step"."""

    def __init__(self, connection: WorkerConnection, events: EventBus, what: str) -> None:
        self._connection = connection
        self._events = events
        self._what = what
        self._pauses: dict[str, float] = {}
        self._found: dict[str, Holder] = {}
        self._named: dict[str, set[Holder]] = {}

    @property
    def patience(self) -> float:
        """How long a statement may wait for any one lock, in seconds."""
        return _LESS_PATIENCE if self._pauses else _PATIENCE

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._pauses

    async def find(self, job_ids: Collection[str], *, with_family: bool) -> set[str] | None:
        """The jobs that are locked now; None: it cannot be found out. A holder is logged once, by the second look that
        finds it: the first may have met a session that was about to let go."""
        try:
            holders = await self._connection.fetch(queries.locks.lock_holders(list(job_ids), with_family=with_family))
        except (psycopg.Error, OSError):
            # The role may lack a right that this version needs. The outcomes must be written all the same.
            return None
        kept = {job_id: holder for job_id, holder in self._found.items() if job_id in self._pauses}
        self._found = kept | {holder.job_id: holder for holder in holders}
        for holder in holders:
            if holder.role is not None and holder.job_id in self._pauses:
                self._log_once(holder)
        return {holder.job_id for holder in holders}

    def set_aside(self, job_id: str) -> float:
        """Note that this job has to wait. Returns for how long, in seconds."""
        pause = self._pauses[job_id] = min(2 * self._pauses.get(job_id, _FIRST_PAUSE), _LONGEST_PAUSE)
        found = self._found.get(job_id)
        if pause >= _LONGEST_PAUSE and job_id not in self._named and found is not None:
            self._log_once(replace(found, pid=None, role=None, application=None, since=None))
        return pause

    def forget(self, job_id: str) -> None:
        for known in (self._pauses, self._found, self._named):
            known.pop(job_id, None)

    def _log_once(self, holder: Holder) -> None:
        named = self._named.setdefault(holder.job_id, set())
        if holder not in named:
            named.add(holder)
            report(self._events, self._what, holder)


def report(events: EventBus, what: str, holder: Holder) -> None:
    since = None if holder.since is None else holder.since.isoformat(sep=" ", timespec="seconds")
    about = (holder.job_id, holder.task, holder.queue, holder.attempt)
    events.emit(JobLocked(*about, what, holder.pid, holder.role, holder.application, since))
