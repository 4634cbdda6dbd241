"""What any worker does for all: promote due jobs, rescue those of dead workers, make and drop partitions.

Every duty is idempotent and safe to do twice at once. One that fails is said and tried again; it stops no other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import psycopg

from stepwell import queries
from stepwell.events import Events, JobsRescued, UpkeepFailed
from stepwell.queries import Query
from stepwell.trouble import explain, is_hopeless
from stepwell.worker.link import Link

Row = TypeVar("Row")

# A little more than the patience of stepwell.rescue, so that its second look at a silent worker is the last.
_RESCUE_EVERY = 1.0
_PARTITIONS_EVERY = 600.0
_PARTITIONS_AGAIN = 5.0
_LONGEST_NAP = 5.0
_SHORTEST_NAP = 0.002


class Upkeep:
    """Runs the duties, each in its own loop."""

    def __init__(
        self,
        due_link: Link,
        link: Link,
        keeps: Sequence[float],
        dsn: Callable[[], str],
        events: Events,
        promoted: Callable[[], None],
    ) -> None:
        self._due_link = due_link
        self._link = link
        self._keeps = list(keeps)
        self._dsn = dsn
        self._events = events
        self._promoted = promoted
        self._failing: set[str] = set()
        self._look_at = 0.0
        self._sooner = asyncio.Event()

    def due(self, seconds: float) -> None:
        """Something will be due in so many seconds."""
        at = asyncio.get_running_loop().time() + seconds
        if at < self._look_at:
            self._look_at = at
            self._sooner.set()

    async def promote(self) -> None:
        """Make due jobs ready at their time, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            promoted = await self._do(self._due_link, "promoting due jobs", queries.promote())
            if promoted is None:
                continue
            nap = _LONGEST_NAP
            if promoted[0].count:
                self._promoted()
            if promoted[0].next_due is not None:
                nap = min(nap, promoted[0].next_due)
            if not promoted[0].count:
                # What is due is being promoted by somebody else: do not race them in circles.
                nap = max(nap, _SHORTEST_NAP)
            self._look_at = loop.time() + nap
            self._sooner.clear()
            while (left := self._look_at - loop.time()) > 0:
                try:
                    await asyncio.wait_for(self._sooner.wait(), left)
                except TimeoutError:
                    break
                self._sooner.clear()

    async def keep_house(self) -> None:
        """Rescue, and look after partitions, until cancelled."""
        loop = asyncio.get_running_loop()
        partitions_at = loop.time()
        while True:
            rescued = await self._do(self._link, "rescuing", queries.rescue())
            if rescued and rescued[0]:
                self._events.emit(JobsRescued(len(rescued[0])))
            if loop.time() >= partitions_at:
                made = await self._do(self._link, "making partitions", queries.make_partitions(self._keeps))
                pruned = await self._do(self._link, "dropping expired partitions", queries.prune())
                done = made is not None and pruned is not None
                partitions_at = loop.time() + (_PARTITIONS_EVERY if done else _PARTITIONS_AGAIN)
            await asyncio.sleep(_RESCUE_EVERY * random.uniform(1.0, 1.1))  # noqa: S311

    async def _do(self, link: Link, duty: str, query: Query[Row]) -> list[Row] | None:
        try:
            rows = await link.fetch(query)
            self._failing.discard(duty)
            return rows
        except (psycopg.Error, OSError) as error:
            if is_hopeless(error):
                raise explain(error, self._dsn()) from error
            if duty not in self._failing:
                self._failing.add(duty)
                self._events.emit(UpkeepFailed(duty, " ".join(str(error).split())))
            await asyncio.sleep(0.5)
            return None
