"""How many jobs, and how many bytes of them, a worker may hold, and so how much its next claim may bring."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stepwell.worker.outcomes.writer import OutcomeWriter
from stepwell.worker.runner import Runner

# Beyond one for each slot, this many claimed jobs may wait: for a slot, or for their outcomes to be written.
_MOST_NOT_RUNNING = 3000
# With batches a slot takes many jobs. The first number grows with that, up to this.
_MOST_IN_BATCHES = 5000
# One claim asks for no more bytes: Postgres and this process each hold its answer as a whole.
_MOST_AT_ONCE = 16 * 1024 * 1024
# Claimed bytes are added as they come. All held bytes are counted this often, and whenever the room seems used up.
_COUNT_EVERY = 0.1


class ClaimBudget:
    """The jobs and bytes that a worker may hold. Its pools share the bytes by their slots, so that large jobs of one do
    not keep another from claiming. Outcomes that wait to be written count for every pool: while they pile up, nothing
    is claimed."""

    def __init__(self, most_bytes: int, runners: Sequence[Runner], outcomes: OutcomeWriter) -> None:
        self._runners = runners
        self._outcomes = outcomes
        self._most_bytes = most_bytes
        self._slots = sum(runner.slots for runner in runners)
        self._counted = [0] * len(runners)
        self._since = [0] * len(runners)
        self._count_at = 0.0

    def jobs(self) -> int:
        unstarted = sum(runner.unstarted_jobs for runner in self._runners)
        in_slots = sum(runner.slots * runner.jobs_per_slot for runner in self._runners)
        return (
            max(self._slots, min(int(in_slots), _MOST_IN_BATCHES))
            + _MOST_NOT_RUNNING
            - unstarted
            - self._outcomes.count
        )

    def bytes(self, pool: int) -> int:
        """How many bytes the next claim for this pool may bring; 0: none. A pool without jobs may always claim one."""
        runner = self._runners[pool]
        part = max(1, self._most_bytes * runner.slots // self._slots)
        now = asyncio.get_running_loop().time()
        if now >= self._count_at or self._counted[pool] + self._since[pool] >= part:
            self._count(now)
        free = part - self._counted[pool] - self._since[pool]
        if free <= 0:
            return 0 if runner.busy or self._outcomes.count else 1
        return min(free, _MOST_AT_ONCE)

    def claimed(self, pool: int, size: int) -> None:
        self._since[pool] += size

    def _count(self, now: float) -> None:
        unwritten = self._outcomes.size
        for pool, runner in enumerate(self._runners):
            self._counted[pool] = unwritten + sum(job.size for job in runner.jobs)
            self._since[pool] = 0
        self._count_at = now + _COUNT_EVERY
