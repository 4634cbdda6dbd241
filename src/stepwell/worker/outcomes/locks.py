"""Jobs that other sessions have locked: wait for none of them long, find out which they are, and say who holds them.

An outcome or a step that meets a lock is set aside, so that those of other jobs go on. It is tried again after a pause
that grows, and not before a look, which waits for nothing, says that the job is free.
"""

from __future__ import annotations

from collections.abc import Collection

import psycopg

from stepwell.postgres import queries
from stepwell.postgres.queries.locks import Holder
from stepwell.telemetry.events import Events, JobLocked
from stepwell.worker.link import Link

_PATIENCE = 0.5
# While something is set aside, others may be locked by the same session: it is not only bad luck any more.
_LESS_PATIENCE = 0.1
_FIRST_PAUSE = 0.125
_LONGEST_PAUSE = 2.0


class Locks:
    """The jobs whose writes over one connection were set aside. `what` is what is written: "outcome", or "step"."""

    def __init__(self, link: Link, events: Events, what: str) -> None:
        self._link = link
        self._events = events
        self._what = what
        self._pauses: dict[str, float] = {}
        self._named: dict[str, set[Holder]] = {}

    @property
    def patience(self) -> float:
        """How long a statement may wait for any one lock, in seconds."""
        return _LESS_PATIENCE if self._pauses else _PATIENCE

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._pauses

    async def find(self, job_ids: Collection[str], *, with_family: bool) -> set[str] | None:
        """Those that are locked now. None: it cannot be told. A holder is reported once, in the second look that finds
        it: the first may have met somebody who was about to let go."""
        try:
            holders = await self._link.fetch(queries.locks.lock_holders(list(job_ids), with_family=with_family))
        except (psycopg.Error, OSError):
            # Perhaps for want of a right that this version needs: the outcomes must be written all the same.
            return None
        for holder in holders:
            if holder.role is not None and holder.job_id in self._pauses:
                self._name(holder)
        return {holder.job_id for holder in holders}

    def set_aside(self, job_id: str) -> float:
        """Note that this job has to wait, and for how long, in seconds."""
        pause = self._pauses[job_id] = min(2 * self._pauses.get(job_id, _FIRST_PAUSE), _LONGEST_PAUSE)
        if pause >= _LONGEST_PAUSE and job_id not in self._named:
            self._name(Holder(job_id, None, None, None, None))
        return pause

    def forget(self, job_id: str) -> None:
        """It has been written, or need not be any more."""
        self._pauses.pop(job_id, None)
        self._named.pop(job_id, None)

    def _name(self, holder: Holder) -> None:
        named = self._named.setdefault(holder.job_id, set())
        if holder in named:
            return
        named.add(holder)
        report(self._events, self._what, holder)


def report(events: Events, what: str, holder: Holder) -> None:
    """Say that a job waits for a lock, and who holds that."""
    since = None if holder.since is None else holder.since.isoformat(sep=" ", timespec="seconds")
    events.emit(JobLocked(holder.job_id, what, holder.pid, holder.role, holder.application, since))
