"""The connection over which a worker's fetchers take turns to claim, and the check for claims whose reply was lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

import psycopg

from stepwell.postgres import queries
from stepwell.postgres.queries import Query
from stepwell.telemetry.bus import EventBus
from stepwell.values.job import ClaimedJob
from stepwell.worker.worker_connection import WorkerConnection

Row = TypeVar("Row")

# A reply is lost only if its connection is lost. The server may run the statement some time after that, most likely
# soon: the first checks come after a second or two.
_RECONCILE_EVERY = 10.0
_DOUBT_FOR = 300.0
# Without a lost connection only a bug leaves unknown jobs. Claims wait for the check, so it is rare.
_RECONCILE_WITHOUT_DOUBT_EVERY = 600.0
_RECONCILE_AGAIN = 1.0
_MEMORY_TRIES = 3


class Claims:
    """`worker_id` is None while there is no lease: then nothing is claimed. A fetcher holds `lock` while it asks, and
    until its runner knows the claimed jobs. `known_jobs` lists every job that this worker knows; `renew_lease` is
    called when the database says that the lease is gone."""

    def __init__(
        self,
        connection: WorkerConnection,
        known_jobs: Callable[[], list[ClaimedJob]],
        renew_lease: Callable[[], None],
        events: EventBus,
    ) -> None:
        self._connection = connection
        self._known_jobs = known_jobs
        self.renew_lease = renew_lease
        self.events = events
        self._reconcile_at = 0.0
        self._asked = True
        self._losses = 0
        self._lost_at = -_DOUBT_FOR
        self.lock = asyncio.Lock()
        self.worker_id: str | None = None
        self.stopping = False

    async def ask(self, worker_id: str, query: Query[Row]) -> list[Row] | None:
        """Repeat the query until the database answers; None: the worker has lost its lease, so the answer is void."""
        self._asked = True
        rows = await self._connection.insist(
            query, lambda: self.worker_id == worker_id and not self.stopping, memory_tries=_MEMORY_TRIES
        )
        return rows if self.worker_id == worker_id else None

    async def reconcile(self) -> None:
        """Hand back jobs that the database says this worker holds, but that it does not know: the reply to a claim was
        lost after its commit. At once when a connection was lost, and regularly for claims that the server ran long
        after we had stopped waiting. Between claims, because then the worker knows every job that it holds."""
        if not self._due():
            return
        async with self.lock:
            worker_id, now = self.worker_id, asyncio.get_running_loop().time()
            if worker_id is None or not self._due():
                return
            if self._connection.losses != self._losses:
                self._losses, self._lost_at = self._connection.losses, now
            self._reconcile_at = now
            found = await self.ask(worker_id, self._hand_back_unknown(worker_id))
            if found is not None:
                in_doubt = self._in_doubt(now)
                # Without a doubt, no job can be claimed without our knowledge until the next question.
                self._asked = in_doubt or found[0] is None
                if found[0] is None:
                    self._reconcile_at = now + _RECONCILE_AGAIN
                elif in_doubt:
                    self._reconcile_at = now + min(max(now - self._lost_at, _RECONCILE_AGAIN), _RECONCILE_EVERY)
                else:
                    self._reconcile_at = now + _RECONCILE_WITHOUT_DOUBT_EVERY

    def seconds_to_reconcile(self) -> float:
        """How long until `reconcile` has something to do."""
        return max(0.0, self._reconcile_at - asyncio.get_running_loop().time()) if self._asked else float("inf")

    async def hand_back_unread(self, worker_id: str) -> None:
        """The same at once, for a claim whose answer could not be decoded. Call it while holding the lock."""
        await self.ask(worker_id, self._hand_back_unknown(worker_id))

    async def hand_back_last(self, *, cut_off: bool = False) -> None:
        """After the last claim, hand back jobs that this worker does not know, if the answer of a claim was lost or the
        last one was `cut_off`."""
        if self.worker_id is not None and (cut_off or self._connection.losses != self._losses):
            with contextlib.suppress(psycopg.Error, OSError):
                await self._connection.fetch(self._hand_back_unknown(self.worker_id))

    def _due(self) -> bool:
        if self.worker_id is None:
            return False
        is_time = self._asked and asyncio.get_running_loop().time() >= self._reconcile_at
        return is_time or self._connection.losses != self._losses

    def _in_doubt(self, now: float) -> bool:
        """Whether the server may still run a claim for which we no longer wait."""
        return now < self._lost_at + _DOUBT_FOR

    def _hand_back_unknown(self, worker_id: str) -> Query[list[UUID] | None]:
        jobs = self._known_jobs()
        return queries.claims.hand_back_unknown(worker_id, [job.id for job in jobs], [job.epoch for job in jobs])
