"""Claim jobs: one fetcher per worker feeds its slots.

It remembers where it stands in each queue and claims after that, so the scan never walks over the dead rows behind it.
It starts over from the front when it comes up short and at least every quarter of a second: what came in ahead of it,
by priority or by a late commit, waits no longer than that.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from uuid import UUID

import psycopg

from stepwell import queries
from stepwell.job import ClaimedJob
from stepwell.queries import Position, Query
from stepwell.worker.link import Link
from stepwell.worker.outcomes import Outcomes
from stepwell.worker.runner import Runner

_RESTART = 0.25
_MOST_PREFETCH = 2000
# Beyond one for each slot, so many claimed jobs may wait: for a slot, or for their outcomes to be written.
_MOST_HELD = 3000
_RECKON_EVERY = 10.0
_RECKON_AGAIN = 1.0
_FRONT = Position()


class Fetcher:
    """Keeps the runner fed. `worker_id` is None while there is no lease: then nothing is claimed."""

    def __init__(
        self,
        link: Link,
        runner: Runner,
        outcomes: Outcomes,
        queues: Sequence[str],
        tasks: Sequence[str],
        poll: Callable[[], float],
        lease_gone: Callable[[], None],
    ) -> None:
        self._link = link
        self._runner = runner
        self._outcomes = outcomes
        self._queues = list(queues)
        self._tasks = list(tasks)
        self._poll = poll
        self._lease_gone = lease_gone
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._positions: dict[str, Position] = {}
        self._front_at = 0.0
        self._from_front = True
        self._claim_seconds = 0.002
        self._rate = 0.0
        self._measured = 0
        self._measured_at = 0.0
        self._reckon_at = 0.0
        self._losses = 0
        self.worker_id: str | None = None
        self.stopping = False

    def wake(self) -> None:
        """Something may be ready: look."""
        self._wake.set()

    def freed(self) -> None:
        """A slot is free."""
        self._room.set()

    def slow_down(self) -> None:
        """What was prefetched is not being run: hold nothing ready until jobs end quickly again."""
        self._rate = 0.0

    def stop(self) -> None:
        """Claim no more."""
        self.stopping = True
        self._wake.set()
        self._room.set()

    async def run(self) -> None:
        """Claim until stopped."""
        while not self.stopping:
            await self._reckon()
            wanted = self._wanted()
            if self.worker_id is None or wanted == 0:
                waits_for = self._wake if self.worker_id is None else self._room
                waits_for.clear()
                await self._wait(waits_for)
                continue
            self._wake.clear()
            jobs = await self._claim(self.worker_id, wanted)
            if jobs is None:
                continue
            self._runner.take(jobs)
            if len(jobs) < wanted:
                # A queue had less than asked for. If that was all of it, there is nothing to do until woken.
                self._positions.clear()
                if self._from_front:
                    await self._wait(self._wake)
        if self.worker_id is not None and self._link.losses != self._losses:
            with contextlib.suppress(psycopg.Error, OSError):
                await self._link.fetch(self._unknown(self.worker_id))

    async def _reckon(self) -> None:
        """Hand back what this worker holds and does not know of: the reply to a claim was lost, after its commit.

        At once when one was, and now and then, for what the server ran long after we had stopped waiting for it. Asked
        between claims, when every job that we know of is in our books.
        """
        now, worker_id = asyncio.get_running_loop().time(), self.worker_id
        if self._link.losses != self._losses:
            self._losses, self._reckon_at = self._link.losses, now
        if worker_id is None or now < self._reckon_at:
            return
        query = self._unknown(worker_id)
        found = await self._link.insist(query, lambda: self.worker_id == worker_id and not self.stopping)
        if found is not None:
            self._reckon_at = now + (_RECKON_AGAIN if found[0] is None else _RECKON_EVERY)

    def _unknown(self, worker_id: str) -> Query[list[UUID] | None]:
        jobs = [*self._runner.jobs, *self._outcomes.jobs]
        return queries.hand_back_unknown(worker_id, [job.id for job in jobs], [job.epoch for job in jobs])

    def _wanted(self) -> int:
        """How many jobs to ask for now; 0: enough are here, or too many outcomes wait to be written."""
        prefetch = self._prefetch()
        wanted = prefetch - self._runner.spare
        room = self._runner.concurrency + _MOST_HELD - len(self._runner.waiting) - self._outcomes.count
        # Not one by one: a claim is made when it brings a good part of what is held ready.
        least = max(1, prefetch // 4)
        return min(wanted, room) if wanted >= least <= room else 0

    def _prefetch(self) -> int:
        """How many jobs to hold ready: what this worker ends in the time of three claims.

        Quick jobs make it large, so that slots never wait for a claim; with slow ones it is zero, and what is not
        running here stays free for others.
        """
        now = asyncio.get_running_loop().time()
        passed = now - self._measured_at
        if passed > 0.02:
            rate = (self._runner.ended - self._measured) / passed
            # The longer the look, the more it counts: after a tenth of a second it is all that counts.
            self._rate += (rate - self._rate) * min(1.0, passed * 10)
            self._measured, self._measured_at = self._runner.ended, now
        return min(_MOST_PREFETCH, int(self._rate * (self._claim_seconds + 0.005) * 3))

    async def _wait(self, event: asyncio.Event) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), self._poll() * random.uniform(0.8, 1.2))  # noqa: S311

    async def _claim(self, worker_id: str, wanted: int) -> list[ClaimedJob] | None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        if began >= self._front_at:
            self._positions.clear()
            # A walk from the front over many jobs that are not ours must not become all we do.
            self._front_at = began + max(_RESTART, 10 * self._claim_seconds)
        self._from_front = not self._positions
        # Each round begins with another queue, so that none is always the last to share what is free.
        self._queues.append(self._queues.pop(0))
        positions = [self._positions.get(queue, _FRONT) for queue in self._queues]
        query = queries.claim(worker_id, self._queues, positions, self._tasks, wanted)
        try:
            jobs = await self._link.insist(query, lambda: self.worker_id == worker_id and not self.stopping)
        except psycopg.Error as error:
            if error.sqlstate != "SW001":
                raise
            # The lease finds out whether it is gone, and says so by a new id; this one may be new already.
            self._lease_gone()
            await self._wait(self._wake)
            return None
        if jobs is None or self.worker_id != worker_id:
            return None  # with the lease went the right to run them
        self._claim_seconds += (loop.time() - began - self._claim_seconds) * 0.2
        jobs.sort(key=_order)
        for queue, last in {job.queue: job for job in jobs}.items():
            self._positions[queue] = Position(last.rank, last.run_at, last.id)
        return jobs


def _order(job: ClaimedJob) -> tuple[int, int, str]:
    return job.rank, job.run_at, job.id
