"""A nap that may be cut short."""

from __future__ import annotations

import asyncio
from math import inf


class Alarm:
    """Wakes one sleeper, at the time it chose or sooner. A ring while it is awake shortens its next nap."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._at = inf
        self._sooner = asyncio.Event()

    def ring_in(self, seconds: float) -> None:
        at = self._loop.time() + seconds
        if at < self._at:
            self._at = at
            self._sooner.set()

    async def nap(self, seconds: float) -> bool:
        """Sleep, and return whether it was cut short."""
        until = self._loop.time() + seconds
        self._at = min(self._at, until)
        while (left := self._at - self._loop.time()) > 0:
            self._sooner.clear()
            try:
                async with asyncio.timeout(left):
                    await self._sooner.wait()
            except TimeoutError:
                break
        self._at = inf
        return self._loop.time() < until
