"""Threads for plain steps, and for the branches of plain tasks."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import TypeVar

from stepwell.durable.run_threads import call_noted
from stepwell.worker.daemon_threads import DaemonThreads

T = TypeVar("T")

MOST = 1000

_level: contextvars.ContextVar[int] = contextvars.ContextVar("stepwell_level", default=0)


class StepThreads:
    """Thread pools by nesting level. A branch that waits for its own branches occupies a thread of its level only, so
    full levels cannot deadlock the next."""

    def __init__(self) -> None:
        self._levels: list[DaemonThreads] = []

    async def run(self, call: Callable[[], T]) -> T:
        """Run a function in a thread of the next level, in a copy of the caller's context."""
        level = _level.get()
        if level == len(self._levels):
            self._levels.append(DaemonThreads(MOST, "stepwell-step"))
        context = contextvars.copy_context()
        context.run(_level.set, level + 1)
        return await asyncio.get_running_loop().run_in_executor(self._levels[level], lambda: context.run(_call, call))

    def close(self) -> None:
        """Shut the pools down without waiting for running functions."""
        for threads in self._levels:
            threads.close()


def _call(call: Callable[[], T]) -> T:
    try:
        return call_noted(call)
    except StopIteration as error:
        # A future cannot carry it: the caller would wait for ever.
        raise RuntimeError("the function raised StopIteration: next() found nothing, and had no default") from error
