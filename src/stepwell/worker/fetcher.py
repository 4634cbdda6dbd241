"""Claim jobs: one fetcher per pool feeds its slots.

It remembers where it stands in each queue and claims after that, so the scan never walks over the dead rows behind it.
It starts over from the front when it comes up short and at least every quarter of a second: what came in ahead of it,
by priority or by a late commit, waits no longer than that. Then it also looks which queues its patterns stand for; a
notification names one sooner.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import psycopg

from stepwell import queries
from stepwell.errors import StepwellError
from stepwell.job import ClaimedJob
from stepwell.queries import Position, Query
from stepwell.worker.balance import Balance
from stepwell.worker.claims import Claims
from stepwell.worker.pools import Pool
from stepwell.worker.runner import Runner
from stepwell.worker.turns import Turns
from stepwell.worker.unread import Refuse, read_each, without_too_large

_RESTART = 0.25
_MOST_PREFETCH = 2000
# While no slot is free only so many names are kept that were heard; what more there are is looked up.
_MOST_HEARD = 1000
# So many are claimed at once when they must be read one by one.
_MOST_UNREAD = 20
_FRONT = Position()


class _Brought(NamedTuple):
    """What a claim brought: all jobs, those among them that could be read, and whether the queues have no more."""

    jobs: list[ClaimedJob]
    readable: list[ClaimedJob]
    all_they_had: bool


class Fetcher:
    """Keeps the runner of a pool fed. `freed` is set whenever there may be room for more."""

    def __init__(
        self,
        claims: Claims,
        runner: Runner,
        pool: Pool,
        balance: Balance,
        tasks: Sequence[str],
        owns: Callable[[str], bool],
        room: Callable[[], int],
        room_in_bytes: Callable[[], int],
        claimed: Callable[[int], None],
        refuse: Refuse,
        freed: asyncio.Event,
        poll: Callable[[], float],
        lease_gone: Callable[[], None],
    ) -> None:
        self._claims = claims
        self._runner = runner
        self._names = pool.names
        self._patterns = pool.patterns
        self._turns = Turns(pool.queues, balance)
        self._tasks = list(tasks)
        self._owns = owns
        self._room = room
        self._room_in_bytes = room_in_bytes
        self._claimed = claimed
        self._refuse = refuse
        self._freed = freed
        self._poll = poll
        self._lease_gone = lease_gone
        self._wake = asyncio.Event()
        self._heard: set[str] = set()
        self._positions: dict[str, Position] = {}
        self._front_at = 0.0
        # What is to be done when it starts over, and what has been done since it did.
        self._start_over = True
        self._look = True
        self._look_at = 0.0
        self._looked = False
        self._passed_some = False
        self._claim_seconds = 0.002
        self._rate = 0.0
        self._measured = 0
        self._measured_at = 0.0

    def wake(self) -> None:
        """Something may be ready: look."""
        self._look = True
        self._wake.set()

    def heard(self, queue: str) -> None:
        """Something may be ready in this queue, which is one of the pool's."""
        if len(self._heard) < _MOST_HEARD:
            self._heard.add(queue)
        else:
            self._look = True
        self._wake.set()

    def freed(self) -> None:
        """There may be room for more."""
        self._freed.set()

    def slow_down(self) -> None:
        """What was prefetched is not being run: hold nothing ready until jobs end quickly again."""
        self._rate = 0.0

    def stop(self) -> None:
        """Claim no more, as `claims` says."""
        self._wake.set()
        self._freed.set()

    async def run(self) -> None:
        """Claim until stopped."""
        claims = self._claims
        while not claims.stopping:
            await claims.reckon()
            wanted, worker_id = self._wanted(), claims.worker_id
            if worker_id is None or wanted == 0:
                waits_for = self._wake if worker_id is None else self._freed
                waits_for.clear()
                await self._wait(waits_for, self._poll())
                continue
            self._wake.clear()
            try:
                async with claims.lock:
                    exhausted = await self._claim(worker_id, wanted)
            except psycopg.Error as error:
                if error.sqlstate != "SW001":
                    raise
                # The lease finds out whether it is gone, and says so by a new id; this one may be new already.
                self._lease_gone()
                await self._wait(self._wake, self._poll())
            else:
                if exhausted:
                    await self._wait(self._wake, min(self._poll(), self._until_look()))

    def _wanted(self) -> int:
        """How many jobs to ask for now; 0: enough are here, in number or in bytes, or too many outcomes wait to be
        written."""
        prefetch = self._prefetch()
        wanted = prefetch - self._runner.spare
        room = self._room()
        # Not one by one: a claim is made when it brings a good part of what is held ready.
        least = max(1, prefetch // 4)
        return min(wanted, room) if wanted >= least <= room and self._room_in_bytes() > 0 else 0

    def _prefetch(self) -> int:
        """How many jobs to hold ready: what this pool ends in the time of three claims.

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

    async def _wait(self, event: asyncio.Event, patience: float) -> None:
        try:
            await asyncio.wait_for(event.wait(), patience * random.uniform(0.8, 1.2))  # noqa: S311
        except TimeoutError:
            self._look = True

    def _until_look(self) -> float:
        """How long a look that is asked for has to wait, as the last was not long ago."""
        if not self._look or not self._patterns:
            return math.inf
        return max(0.0, self._look_at - asyncio.get_running_loop().time())

    async def _claim(self, worker_id: str, wanted: int) -> bool:
        """Claim once. True: there is nothing more to claim until woken."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._start_over or now >= self._front_at:
            # What was heard is claimed first, and then looked for more: a look costs as much as a claim.
            self._look = self._look or not self._start_over
            # A walk from the front over many jobs that are not ours must not become all we do.
            self._front_at = now + max(_RESTART, 10 * self._claim_seconds)
            await self._go_to_front(worker_id)
        if self._heard:
            self._turns.add(self._heard)
            self._heard.clear()
        asked = self._turns.next()
        if asked:
            brought = await self._claim_from(asked, worker_id, wanted)
            if brought is None:
                return False
            self._note(asked, brought)
            self._claimed(sum(job.size for job in brought.readable))
            self._runner.take(self._in_order(asked, brought.readable))
        if len(self._turns):
            return False
        # All queues had less than asked for. If that was all of it, there is nothing to do until woken.
        self._start_over = True
        if self._passed_some:
            return False
        if self._patterns and not self._looked and loop.time() >= self._look_at:
            self._look = True
            return False
        return True

    async def _go_to_front(self, worker_id: str) -> None:
        self._start_over = self._looked = self._passed_some = False
        self._positions.clear()
        self._turns.add(self._names)
        if not self._patterns or not self._look:
            return
        began = asyncio.get_running_loop().time()
        if began < self._look_at:
            return
        found = await self._claims.ask(worker_id, queries.ready_queues(self._patterns))
        if found is None:
            return
        self._look_at = began + max(_RESTART, 10 * (asyncio.get_running_loop().time() - began))
        self._look, self._looked = False, True
        # Not only added: what there was of a queue for each customer, say, must not stay for ever.
        self._turns.replace([*self._names, *(queue for queue in found if self._owns(queue))])

    async def _claim_from(self, asked: list[str], worker_id: str, wanted: int) -> _Brought | None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        if not self._positions.keys().isdisjoint(asked):
            self._passed_some = True
        positions = [self._positions.get(queue, _FRONT) for queue in asked]

        def query(limit: int, *, unread: bool) -> Query[ClaimedJob]:
            shares, most = self._turns.shares(asked), max(1, self._room_in_bytes())
            return queries.claim(
                worker_id, asked, positions, self._tasks, limit, shares, most_bytes=most, unread=unread
            )

        try:
            jobs = await self._claims.ask(worker_id, query(wanted, unread=False))
        except StepwellError:
            raise
        except Exception as error:
            if isinstance(error, psycopg.Error) and error.sqlstate == "SW001":
                raise
            # Most likely for what one of the jobs holds: unread they can be claimed, and then each is read by itself.
            if not isinstance(error, psycopg.Error):
                await self._claims.take_back(worker_id)
            most = min(wanted, _MOST_UNREAD)
            jobs = await self._claims.ask(worker_id, query(most, unread=True))
            if jobs is None:
                return None
            read = await read_each(jobs, lambda reading: self._claims.ask(worker_id, reading), self._refuse)
            return None if read is None else _Brought(jobs, read, len(jobs) < most and not (jobs and jobs[-1].more))
        if jobs is None:
            return None
        self._claim_seconds += (loop.time() - began - self._claim_seconds) * 0.2
        # Those that the last of the queues gave come last, and know whether the claim ended there for its bytes.
        all_they_had = len(jobs) < wanted and not (jobs and jobs[-1].more)
        return _Brought(jobs, without_too_large(jobs, self._refuse), all_they_had)

    def _note(self, asked: list[str], brought: _Brought) -> None:
        """Remember what the jobs say of their queues."""
        jobs = sorted(brought.jobs, key=_order)
        for queue, last in {job.queue: job for job in jobs}.items():
            self._positions[queue] = Position(last.rank, last.run_at, last.id)
        counts = Counter(job.queue for job in jobs) if len(asked) > 1 else {asked[0]: len(jobs)}
        self._turns.gave(asked, counts, all_they_had=brought.all_they_had)

    def _in_order(self, asked: list[str], jobs: list[ClaimedJob]) -> list[ClaimedJob]:
        jobs.sort(key=_order)
        if self._turns.strict and len(asked) > 1:
            place = {queue: place for place, queue in enumerate(asked)}
            jobs.sort(key=lambda job: place[job.queue])
        return jobs


def _order(job: ClaimedJob) -> tuple[int, int, str]:
    return job.rank, job.run_at, job.id
