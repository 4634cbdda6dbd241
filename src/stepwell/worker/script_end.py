"""Tell the end of a script from the end of a handler.

In a script, Ctrl-C raises `KeyboardInterrupt` in whatever runs at that moment, and asyncio then cancels every task. If
that hits a handler, the handler has not failed: its job is handed back.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import NoReturn, TypeVar

T = TypeVar("T")


class ScriptEnd:
    """For the runs of one worker. Made in the worker's own task."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._worker = asyncio.current_task()
        # Not always 0: a task that has swallowed a cancel still counts it.
        self._cancels_before = 0 if self._worker is None else self._worker.cancelling()

    def ended(self, error: BaseException | None, *, on_loop: bool) -> bool:
        """Whether a handler failed with this error because the script ends, or because the worker is cancelled: asyncio
        cancels handlers, too, and some before the worker can ask them to stop. Ctrl-C is raised only `on_loop`, and not
        in other threads."""
        return self._is_cancelled() or (on_loop and isinstance(error, KeyboardInterrupt) and _is_ctrl_c())

    def pass_on(self, error: BaseException | None) -> None:
        """Raise a `KeyboardInterrupt` that a handler got once more, for the script. If the worker is cancelled, the
        script has it already: raised again, it would keep the worker from handing its jobs back."""
        if isinstance(error, KeyboardInterrupt) and not self._is_cancelled():
            self._loop.call_soon(_interrupt)

    def _is_cancelled(self) -> bool:
        return self._worker is not None and self._worker.cancelling() > self._cancels_before


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
    """Whether a `KeyboardInterrupt` comes from Ctrl-C, and not from a handler's own code."""
    if threading.current_thread() is not threading.main_thread():
        return False
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    if on_ctrl_c is signal.default_int_handler:
        return True
    # At the first Ctrl-C, `asyncio.run` cancels its main task; only the second one is raised.
    main = getattr(on_ctrl_c, "keywords", {}).get("main_task")
    return isinstance(main, asyncio.Task) and main.cancelling() > 0


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt
