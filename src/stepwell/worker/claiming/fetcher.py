"""Claim jobs: one fetcher per pool feeds its slots.

A fetcher is told where jobs became ready, by a notification or by the lookout. It claims from there, so the scan walks
over no dead rows in front of that place. A queue of which it was told nothing is not asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import psycopg

from stepwell.errors import StepwellError
from stepwell.postgres import queries
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.claims import Position
from stepwell.values.job import ClaimedJob
from stepwell.worker.claiming.balance import Balance
from stepwell.worker.claiming.claims import Claims
from stepwell.worker.claiming.places import Place, Places
from stepwell.worker.claiming.pools import Pool
from stepwell.worker.claiming.turns import Turns
from stepwell.worker.claiming.unread import Refuse, read_each, without_too_large
from stepwell.worker.runner import Runner

_MOST_PREFETCH = 2000
_PATIENCE = 1.0
_LONGEST_WAIT = 10.0
# Anybody may notify, with names of queues that are not there. The lookout finds what is not kept.
_MOST_HEARD = 1000
# So many are claimed at once when they must be read one by one.
_MOST_UNREAD = 20


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
        room: Callable[[], int],
        room_in_bytes: Callable[[], int],
        claimed: Callable[[int], None],
        refuse: Refuse,
        freed: asyncio.Event,
        lease_gone: Callable[[], None],
    ) -> None:
        self._claims = claims
        self._runner = runner
        self._turns = Turns(pool.queues, balance)
        self._tasks = list(tasks)
        self._room = room
        self._room_in_bytes = room_in_bytes
        self._claimed = claimed
        self._refuse = refuse
        self._freed = freed
        self._lease_gone = lease_gone
        self._wake = asyncio.Event()
        self._heard = Places()
        self._places = Places()
        self._claim_seconds = 0.002
        self._rate = 0.0
        self._measured = 0
        self._measured_at = 0.0

    def heard(self, queue: str, place: Place) -> None:
        """Somebody says that something is ready there, in one of the pool's queues."""
        if len(self._heard) < _MOST_HEARD or queue in self._heard:
            self.found(queue, place)

    def found(self, queue: str, place: Place) -> None:
        """Something is ready there."""
        # Kept apart until the next claim: the one under way may have begun before the job was there.
        self._heard.add(queue, place)
        self._wake.set()

    def lease_gained(self) -> None:
        """The worker may claim again."""
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
        while True:
            # Cleared before all that is looked at below: whoever wakes us meanwhile is heard.
            self._wake.clear()
            await claims.reckon()
            if claims.stopping:
                return
            wanted, worker_id = self._wanted(), claims.worker_id
            if worker_id is None or wanted == 0:
                waits_for = self._wake if worker_id is None else self._freed
                waits_for.clear()
                await self._wait(waits_for, _PATIENCE)
                continue
            try:
                async with claims.lock:
                    exhausted = await self._claim(worker_id, wanted)
            except psycopg.Error as error:
                if error.sqlstate != "SW001":
                    raise
                # The lease finds out whether it is gone, and says so by a new id; this one may be new already.
                self._lease_gone()
                await self._wait(self._wake, _PATIENCE)
            else:
                if exhausted:
                    # Not for ever: `reckon` is to be called now and then.
                    await self._wait(self._wake, _LONGEST_WAIT)

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
        # Not `wait_for`, which makes a task to wait in before Python 3.12: whoever wakes us would wake that first.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await event.wait()

    async def _claim(self, worker_id: str, wanted: int) -> bool:
        """Claim once. True: there is nothing more to claim until woken."""
        self._turns.add(self._places.merge(self._heard))
        asked = self._turns.next()
        if asked:
            brought = await self._claim_from(asked, worker_id, wanted)
            if brought is None:
                return False
            self._note(asked, brought)
            self._claimed(sum(job.size for job in brought.readable))
            self._runner.take(self._in_order(asked, brought.readable))
        return not len(self._turns)

    async def _claim_from(self, asked: list[str], worker_id: str, wanted: int) -> _Brought | None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        places = [self._places.first(queue) for queue in asked]

        def query(limit: int, *, unread: bool) -> Query[ClaimedJob]:
            shares, most = self._turns.shares(asked), max(1, self._room_in_bytes())
            return queries.claims.claim(
                worker_id,
                asked,
                [place.after for place in places],
                self._tasks,
                limit,
                shares,
                most_bytes=most,
                unread=unread,
                last_ranks=[place.last_rank for place in places],
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
            self._places.advance(queue, Position(last.rank, last.run_at, last.id))
        counts = Counter(job.queue for job in jobs) if len(asked) > 1 else {asked[0]: len(jobs)}
        ended = self._turns.gave(asked, counts, all_they_had=brought.all_they_had)
        for queue in ended:
            self._places.end(queue)
        self._turns.remove(queue for queue in ended if queue not in self._places)

    def _in_order(self, asked: list[str], jobs: list[ClaimedJob]) -> list[ClaimedJob]:
        jobs.sort(key=_order)
        if self._turns.strict and len(asked) > 1:
            place = {queue: place for place, queue in enumerate(asked)}
            jobs.sort(key=lambda job: place[job.queue])
        return jobs


def _order(job: ClaimedJob) -> tuple[int, int, str]:
    return job.rank, job.run_at, job.id
