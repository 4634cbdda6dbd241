"""Tell the end of a script from the end of a handler.

In a script, Ctrl-C raises `KeyboardInterrupt` in whatever runs at that moment, and asyncio then cancels every task. If
that hits a handler, the handler has not failed: its job is handed back.
"""

from __future__ import annotations

import asyncio
import signal
from typing import NoReturn, TypeVar

T = TypeVar("T")


class ScriptEnd:
    """For the runs of one worker. Made in the worker's own task."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._worker = asyncio.current_task()

    def ended(self, error: BaseException | None, *, on_loop: bool) -> bool:
        """Whether a handler got this error because the script ends, or because the worker is cancelled. Ctrl-C is
        raised only `on_loop`, and not in other threads."""
        if isinstance(error, asyncio.CancelledError):
            return self._worker is not None and self._worker.cancelling() > 0
        return on_loop and isinstance(error, KeyboardInterrupt) and _is_ctrl_c()

    def pass_on(self, error: BaseException | None) -> None:
        """Raise a `KeyboardInterrupt` that a handler got once more, for the script itself."""
        if isinstance(error, KeyboardInterrupt):
            self._loop.call_soon(_interrupt)


async def outlast_cancels(future: asyncio.Future[T]) -> T:
    """Wait for a future, and ignore cancels of this task meanwhile: the caller has been cancelled already, or raises
    them when it has cleaned up."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
    return future.result()


def _is_ctrl_c() -> bool:
    """Whether a `KeyboardInterrupt` comes from Ctrl-C, and not from a handler's own code. At the first Ctrl-C,
    `asyncio.run` cancels a task; only the second one is raised."""
    by_python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return by_python or any(task.cancelling() for task in asyncio.all_tasks())


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt
