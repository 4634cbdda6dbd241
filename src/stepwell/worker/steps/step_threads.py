"""Threads for plain steps, and for the branches of plain tasks."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

MOST = 1000

_level: contextvars.ContextVar[int] = contextvars.ContextVar("stepwell_level", default=0)


class StepThreads:
    """Threads by levels: what a branch starts and waits for has others than the branch itself. So when all of one level
    are taken by those who wait, the next one's are not."""

    def __init__(self) -> None:
        self._levels: list[ThreadPoolExecutor] = []

    async def run(self, call: Callable[[], T]) -> T:
        """Run a function in a thread, in a context of its own, with the branch that it belongs to."""
        level = _level.get()
        if level == len(self._levels):
            self._levels.append(ThreadPoolExecutor(MOST, thread_name_prefix="stepwell-step"))
        context = contextvars.copy_context()
        context.run(_level.set, level + 1)
        return await asyncio.get_running_loop().run_in_executor(self._levels[level], lambda: context.run(_ended, call))

    def close(self) -> None:
        """Let go of them. Those that still run are not waited for."""
        for threads in self._levels:
            threads.shutdown(wait=False, cancel_futures=True)


def _ended(call: Callable[[], T]) -> T:
    """What it returns or raises, but for one that a future cannot carry: who waited for it would do so for ever."""
    try:
        return call()
    except StopIteration as error:
        raise RuntimeError("the function raised StopIteration: next() found nothing, and had no default") from error
