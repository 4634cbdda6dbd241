"""The leader's duties: what to call, how often, and how many rows at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stepwell.postgres.queries import Query
from stepwell.worker.duty_runner import DutyRunner

_AGAIN = 5.0
_QUICK = 0.05
_SLOW = 0.2
_MOST_ROWS = 10_000


@dataclass(slots=True)
class Duty:
    """A query that the leader runs every so often; or every worker, if each has something of its own to do."""

    name: str
    every: float
    query: Callable[[], Query[Any]]
    found: Callable[[list[Any]], object] = lambda _: None
    """Called with the rows of the answer."""
    everyone: bool = False
    at: float = 0.0

    async def do(self, runner: DutyRunner) -> None:
        done = await runner.do(self.name, self.query())
        if done:
            self.found(done)
        pause = self.every if done is not None else min(self.every, _AGAIN)
        self.at = asyncio.get_running_loop().time() + pause


@dataclass(slots=True)
class BatchDuty:
    """Deletes expired rows, or counts new ones, in batches until none is left. Rows may be large: the size of a batch
    adapts to its time."""

    name: str
    every: float
    query: Callable[[int], Query[int]]
    """Deletes or counts so many rows, and returns how many. Fewer: none is left."""
    limit: int = 1_000
    at: float = 0.0

    async def do(self, runner: DutyRunner, until: float) -> None:
        """Go on until a batch is not full, or until this time of the loop; the next round goes on from there."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            done = await runner.do(self.name, self.query(self.limit))
            if done is None:
                # The batch may have been too large for the time that a duty has.
                self.limit = max(1, self.limit // 10)
                self.at = loop.time() + _AGAIN
                return
            full = done[0] >= self.limit
            seconds = loop.time() - started
            if seconds > _SLOW:
                self.limit = max(1, self.limit // 2)
            elif full and seconds < _QUICK:
                self.limit = min(_MOST_ROWS, self.limit * 2)
            if not full:
                self.at = loop.time() + self.every
                return
            if loop.time() >= until:
                return
