"""How many bytes of jobs a worker holds, and so how many it may claim."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stepwell.worker.outcomes.writer import Outcomes
from stepwell.worker.runner import Runner

# One claim asks for no more: it is one answer, which Postgres and this process each hold as a whole.
_MOST_AT_ONCE = 16 * 1024 * 1024
# What is claimed is added as it comes. All that is held is added up this often, and whenever the room seems used up.
_COUNT_EVERY = 0.1


class Held:
    """The bytes that a worker may hold, shared among its pools by their slots.

    Each pool has its own part, so that large jobs of one do not keep another from claiming. Outcomes that wait to be
    written count for every pool: while they pile up, nothing is claimed.
    """

    def __init__(self, most: int, runners: Sequence[Runner], outcomes: Outcomes) -> None:
        self._runners = runners
        self._outcomes = outcomes
        self._most = most
        self._counted = [0] * len(runners)
        self._since = [0] * len(runners)
        self._count_at = 0.0

    def room(self, number: int) -> int:
        """How many bytes the next claim for this pool may bring; 0: none. A pool without jobs may always claim one."""
        runners = self._runners
        part = max(1, self._most * runners[number].concurrency // sum(runner.concurrency for runner in runners))
        now = asyncio.get_running_loop().time()
        if now >= self._count_at or self._counted[number] + self._since[number] >= part:
            self._count(now)
        free = part - self._counted[number] - self._since[number]
        if free <= 0:
            return 0 if runners[number].busy or self._outcomes.count else 1
        return min(free, _MOST_AT_ONCE)

    def claimed(self, number: int, size: int) -> None:
        """A claim brought so many bytes."""
        self._since[number] += size

    def _count(self, now: float) -> None:
        unwritten = self._outcomes.size
        for number, runner in enumerate(self._runners):
            self._counted[number] = unwritten + sum(job.size for job in runner.jobs)
            self._since[number] = 0
        self._count_at = now + _COUNT_EVERY
