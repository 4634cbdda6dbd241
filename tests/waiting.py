"""Wait for something real to happen, with a deadline, instead of sleeping and hoping.

A deadline says that a thing never happens. It is no measure of speed, so it is long: other tests, a browser and a
type checker may run on the same two cores.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from stepwell import Worker
from stepwell.telemetry.bus import Telemetry

T = TypeVar("T")
E = TypeVar("E", bound=Telemetry)


def until(holds: Callable[[], T], within: float = 60.0) -> T:
    """Call until it returns something true, and return that."""
    deadline = time.monotonic() + within
    while not (value := holds()):
        assert time.monotonic() < deadline, f"did not happen within {within:g} s"
        time.sleep(0.01)
    return value


async def auntil(holds: Callable[[], T | Awaitable[T]], within: float = 60.0) -> T:
    """The same in async code; what is called may be a coroutine function."""
    deadline = time.monotonic() + within
    while not (value := await _value(holds())):
        assert time.monotonic() < deadline, f"did not happen within {within:g} s"
        await asyncio.sleep(0.01)
    return value


async def _value(given: T | Awaitable[T]) -> T:
    return await cast("Awaitable[T]", given) if inspect.isawaitable(given) else cast("T", given)


class Heard:
    """Collects a worker's events and lets a test wait for one."""

    def __init__(self, worker: Worker) -> None:
        self.events: list[Telemetry] = []
        self._loop = asyncio.get_running_loop()
        self._came = asyncio.Event()
        worker.subscribe(self._receive)

    def _receive(self, event: Telemetry) -> None:
        self.events.append(event)
        self._loop.call_soon_threadsafe(self._came.set)

    def of(self, kind: type[E]) -> list[E]:
        """All events of a kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    async def wait_for(self, kind: type[E], within: float = 60.0) -> E:
        """The first event of a kind, waiting for it if need be."""
        async with asyncio.timeout(within):
            while not (found := self.of(kind)):
                self._came.clear()
                await self._came.wait()
            return found[0]
