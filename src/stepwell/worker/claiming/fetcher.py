"""Claim jobs: one fetcher per pool feeds its slots.

A notification or the `ReadyPoller` tells a fetcher where jobs became ready. It claims from there, so the scan passes
over no dead rows in front of that place. It does not ask queues in which nothing is known to be ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from typing import NamedTuple

import psycopg

from stepwell.errors import StepwellError
from stepwell.postgres import queries
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.claims import Position
from stepwell.telemetry.jobs import JobClaimed, JobsClaimed
from stepwell.values.job import ClaimedJob
from stepwell.worker.claiming.balance import Balance
from stepwell.worker.claiming.claim_budget import ClaimBudget
from stepwell.worker.claiming.claims import Claims
from stepwell.worker.claiming.pools import Pools
from stepwell.worker.claiming.queue_rotation import QueueRotation
from stepwell.worker.claiming.ready_ranges import ReadyRange, ReadyRanges
from stepwell.worker.claiming.unreadable_jobs import read_each, without_too_large
from stepwell.worker.runner import Runner

_MOST_PREFETCH = 2000
_PATIENCE = 1.0
_LONGEST_WAIT = 10.0
# Anybody may notify, with names of queues that do not exist. The `ReadyPoller` finds jobs in queues beyond this limit.
_MOST_NOTIFIED = 1000
# At most this many are claimed at once when they must be read one by one.
_MOST_UNREAD = 20


class _Claimed(NamedTuple):
    """The answer to a claim: all jobs, those among them that could be read, and whether the queues have no more."""

    jobs: list[ClaimedJob]
    readable: list[ClaimedJob]
    all_they_had: bool


class Fetcher:
    """Keeps the runner of a pool fed. `number` counts the pool among all pools of the worker."""

    def __init__(
        self, claims: Claims, runner: Runner, pools: Pools, number: int, balance: Balance, budget: ClaimBudget
    ) -> None:
        self._claims = claims
        self._runner = runner
        self._number = number
        self._budget = budget
        self._rotation = QueueRotation(pools.all[number].queues, balance)
        self._wake = asyncio.Event()
        self._new_ranges = ReadyRanges()
        self._ranges = ReadyRanges()
        self._claim_seconds = 0.002
        self._rate = 0.0
        self._measured = 0
        self._measured_at = 0.0

    def notified(self, queue: str, ready: ReadyRange) -> bool:
        """A notification says that jobs are ready there, in one of the pool's queues. False: it has no room for it."""
        known = queue in self._new_ranges or queue in self._ranges
        if not known and len(self._new_ranges) + len(self._ranges) >= _MOST_NOTIFIED:
            return False
        self.found(queue, ready)
        return True

    def found(self, queue: str, ready: ReadyRange) -> None:
        # Kept apart until the next claim: the one under way may have begun before the job was there.
        self._new_ranges.add(queue, ready)
        self._wake.set()

    def lease_gained(self) -> None:
        self._wake.set()

    def slow_down(self) -> None:
        """Prefetched jobs are not being run: hold none ready until jobs end quickly again."""
        self._rate = 0.0

    def stop(self) -> None:
        """Look at once whether `claims` says to stop."""
        self._wake.set()
        self._runner.freed.set()

    async def run(self) -> None:
        claims = self._claims
        while True:
            # Cleared before everything that is read below: a wake-up in between is not missed.
            self._wake.clear()
            await claims.reconcile()
            if claims.stopping:
                return
            wanted, worker_id = self._wanted(), claims.worker_id
            if worker_id is None or wanted == 0:
                waits_for = self._wake if worker_id is None else self._runner.freed
                waits_for.clear()
                await self._wait(waits_for, _PATIENCE)
                continue
            try:
                async with claims.lock:
                    exhausted = await self._claim(worker_id, wanted)
            except psycopg.Error as error:
                if error.sqlstate != "SW001":
                    raise
                # The lease finds out whether it is gone, and gets a new id if so; that may have happened already.
                claims.renew_lease()
                await self._wait(self._wake, _PATIENCE)
            else:
                if exhausted:
                    # Not for ever: a connection may be lost while nothing is claimed.
                    await self._wait(self._wake, min(_LONGEST_WAIT, claims.seconds_to_reconcile()))

    def _wanted(self) -> int:
        """How many jobs to claim now; 0: the worker holds enough jobs or bytes, or too many outcomes are unwritten."""
        prefetch = self._prefetch()
        wanted = prefetch - self._runner.spare
        room = self._budget.jobs()
        # Not one by one: a claim is made when it brings a good part of the prefetch.
        # Batches are held and run by the hundred, so a larger part costs no time, and larger claims cost less.
        least = max(1, prefetch // (4 if self._runner.jobs_per_slot == 1 else 2))
        return min(wanted, room) if wanted >= least <= room and self._budget.bytes(self._number) > 0 else 0

    def _prefetch(self) -> int:
        """How many jobs to hold ready: as many as this pool ends in the time of three claims. Quick jobs make it large,
        so that slots never wait for a claim. With slow jobs it is 0: jobs that cannot run here yet stay free for other
        workers."""
        now = asyncio.get_running_loop().time()
        passed = now - self._measured_at
        if passed > 0.02:
            rate = (self._runner.ended - self._measured) / passed
            # The longer the interval, the more it counts: after a tenth of a second it is all that counts.
            self._rate += (rate - self._rate) * min(1.0, passed * 10)
            self._measured, self._measured_at = self._runner.ended, now
        prefetch = min(_MOST_PREFETCH, int(self._rate * (self._claim_seconds + 0.005) * 3))
        # In whole batches: one that is not full would start as soon as there is a slot, and make the jobs slower.
        per_slot = self._runner.jobs_per_slot
        return prefetch if per_slot == 1 else int(math.ceil(prefetch / per_slot) * per_slot)

    async def _wait(self, event: asyncio.Event, patience: float) -> None:
        # Not `wait_for`: before Python 3.12 it waits in a task of its own, which would be woken first.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await event.wait()

    async def _claim(self, worker_id: str, wanted: int) -> bool:
        """Claim once. True: there is nothing more to claim until woken."""
        self._rotation.add(self._ranges.merge(self._new_ranges))
        asked = self._rotation.next()
        if asked:
            claimed = await self._claim_from(asked, worker_id, wanted)
            if claimed is None:
                return False
            self._note(asked, claimed)
            self._budget.claimed(self._number, sum(job.size for job in claimed.readable))
            if self._claims.events.wanted(JobsClaimed):
                self._claims.events.emit(JobsClaimed(worker_id, tuple(asked), len(claimed.jobs)))
            if self._claims.events.wanted(JobClaimed):
                for job in claimed.jobs:
                    self._claims.events.emit(JobClaimed(job.id, job.task, job.queue, job.attempt, worker_id))
            self._runner.take(self._in_order(asked, claimed.readable))
        return not len(self._rotation)

    async def _claim_from(self, asked: list[str], worker_id: str, wanted: int) -> _Claimed | None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        ranges = [self._ranges.first(queue) for queue in asked]

        def query(limit: int, *, unread: bool) -> Query[ClaimedJob]:
            return queries.claims.claim(
                worker_id,
                asked,
                [ready.after for ready in ranges],
                self._runner.task_names,
                limit,
                self._rotation.shares(asked),
                most_bytes=max(1, self._budget.bytes(self._number)),
                unread=unread,
                last_ranks=[ready.last_rank for ready in ranges],
            )

        refuse = self._runner.end_unstarted
        try:
            jobs = await self._claims.ask(worker_id, query(wanted, unread=False))
        except StepwellError:
            raise
        except Exception as error:
            if isinstance(error, psycopg.Error) and error.sqlstate == "SW001":
                raise
            # Most likely one of the jobs cannot be read. They can be claimed unread; then each is read by itself.
            if not isinstance(error, psycopg.Error):
                await self._claims.hand_back_unread(worker_id)
            most = min(wanted, _MOST_UNREAD)
            jobs = await self._claims.ask(worker_id, query(most, unread=True))
            if jobs is None:
                return None
            read = await read_each(jobs, lambda reading: self._claims.ask(worker_id, reading), refuse)
            return None if read is None else _Claimed(jobs, read, len(jobs) < most and not (jobs and jobs[-1].more))
        if jobs is None:
            return None
        self._claim_seconds += (loop.time() - began - self._claim_seconds) * 0.2
        # The last job comes from the last queue, and says whether the claim ended there because of its bytes.
        all_they_had = len(jobs) < wanted and not (jobs and jobs[-1].more)
        return _Claimed(jobs, without_too_large(jobs, refuse), all_they_had)

    def _note(self, asked: list[str], claimed: _Claimed) -> None:
        """Remember what the claim tells of its queues."""
        jobs = sorted(claimed.jobs, key=_order)
        for queue, last in {job.queue: job for job in jobs}.items():
            self._ranges.advance(queue, Position(last.rank, last.run_at, last.id))
        counts = Counter(job.queue for job in jobs) if len(asked) > 1 else {asked[0]: len(jobs)}
        ended = self._rotation.gave(asked, counts, all_they_had=claimed.all_they_had)
        for queue in ended:
            self._ranges.end(queue)
        self._rotation.remove(queue for queue in ended if queue not in self._ranges)

    def _in_order(self, asked: list[str], jobs: list[ClaimedJob]) -> list[ClaimedJob]:
        jobs.sort(key=_order)
        if self._rotation.strict and len(asked) > 1:
            order = {queue: n for n, queue in enumerate(asked)}
            jobs.sort(key=lambda job: order[job.queue])
        return jobs


def _order(job: ClaimedJob) -> tuple[int, int, str]:
    return job.rank, job.run_at, job.id
