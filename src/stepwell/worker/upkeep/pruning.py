"""Take expired rows away in batches, until there are no more of them.

Rows may be large, so a batch is as many of them as can be deleted in a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from stepwell.postgres.queries import Query
from stepwell.worker.upkeep.duty import Duties

_AGAIN = 5.0
_QUICK = 0.05
_SLOW = 0.2
_MOST = 10_000


@dataclass(slots=True)
class Pruning:
    """What is pruned, and how much of it at a time."""

    name: str
    every: float
    query: Callable[[int], Query[int]]
    """Takes away as many rows as it is given, or fewer, and says how many."""
    limit: int = 1_000
    at: float = 0.0

    async def do(self, duties: Duties, until: float) -> None:
        """Prune until a batch is not full, or until this time of the loop; the next round goes on from there."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            done = await duties.do(self.name, self.query(self.limit))
            if done is None:
                # It may have been too much for the time that a duty has.
                self.limit = max(1, self.limit // 10)
                self.at = loop.time() + _AGAIN
                return
            full = done[0] >= self.limit
            self._adapt(loop.time() - started, full=full)
            if not full:
                self.at = loop.time() + self.every
                return
            if loop.time() >= until:
                return

    def _adapt(self, seconds: float, *, full: bool) -> None:
        if seconds > _SLOW:
            self.limit = max(1, self.limit // 2)
        elif full and seconds < _QUICK:
            self.limit = min(_MOST, self.limit * 2)
