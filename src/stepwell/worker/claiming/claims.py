"""Where a worker's fetchers take turns to claim: one connection, and books that are compared with the database's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

import psycopg

from stepwell.postgres import queries
from stepwell.postgres.queries import Query
from stepwell.values.job import ClaimedJob
from stepwell.worker.link import Link
from stepwell.worker.upkeep.walks import pause_after

Row = TypeVar("Row")

# A reply is lost only with its connection, and the server may carry out what it was sent some time after that.
_RECKON_EVERY = 10.0
_DOUBT_FOR = 300.0
# Otherwise there is nothing to find, unless we have a fault of our own: claims wait meanwhile, so it is done rarely.
_RECKON_WITHOUT_DOUBT_EVERY = 600.0
_RECKON_AGAIN = 1.0
_MEMORY_TRIES = 3


class Claims:
    """`worker_id` is None while there is no lease: then nothing is claimed. `books` lists every job that is known here.

    Whoever holds `lock` may ask. A claim's jobs enter the books before it is let go.
    """

    def __init__(self, link: Link, books: Callable[[], list[ClaimedJob]]) -> None:
        self._link = link
        self._books = books
        self._reckon_at = 0.0
        self._asked = True
        self._losses = 0
        self._doubt_until = 0.0
        self.lock = asyncio.Lock()
        self.worker_id: str | None = None
        self.stopping = False

    async def ask(self, worker_id: str, query: Query[Row]) -> list[Row] | None:
        """Ask for this worker until it is answered; None: its lease is gone, and with it the right to the answer."""
        self._asked = True
        rows = await self._link.insist(
            query, lambda: self.worker_id == worker_id and not self.stopping, memory_tries=_MEMORY_TRIES
        )
        return rows if self.worker_id == worker_id else None

    async def reckon(self) -> None:
        """Hand back what this worker holds and does not know of: the reply to a claim was lost, after its commit.

        At once when one was, and now and then, for what the server ran long after we had stopped waiting for it. Asked
        between claims, when every job that we know of is in our books.
        """
        if not self._due():
            return
        async with self.lock:
            worker_id, now = self.worker_id, asyncio.get_running_loop().time()
            if worker_id is None or not self._due():
                return
            if self._link.losses != self._losses:
                self._losses, self._doubt_until = self._link.losses, now + _DOUBT_FOR
            self._reckon_at = now
            found = await self.ask(worker_id, self._unknown(worker_id))
            if found is not None:
                took = asyncio.get_running_loop().time() - now
                # Until something is asked again, nothing can be claimed without our knowing.
                self._asked = found[0] is None
                every = _RECKON_EVERY if now < self._doubt_until else _RECKON_WITHOUT_DOUBT_EVERY
                self._reckon_at = now + (_RECKON_AGAIN if found[0] is None else max(every, pause_after(took)))

    async def take_back(self, worker_id: str) -> None:
        """The same at once, for a claim that was answered and could not be understood. For whoever holds the lock."""
        await self.ask(worker_id, self._unknown(worker_id))

    async def settle(self) -> None:
        """The same, once, when the last claim has been made."""
        if self.worker_id is not None and self._link.losses != self._losses:
            with contextlib.suppress(psycopg.Error, OSError):
                await self._link.fetch(self._unknown(self.worker_id))

    def _due(self) -> bool:
        if self.worker_id is None:
            return False
        is_time = self._asked and asyncio.get_running_loop().time() >= self._reckon_at
        return is_time or self._link.losses != self._losses

    def _unknown(self, worker_id: str) -> Query[list[UUID] | None]:
        jobs = self._books()
        return queries.claims.hand_back_unknown(worker_id, [job.id for job in jobs], [job.epoch for job in jobs])
