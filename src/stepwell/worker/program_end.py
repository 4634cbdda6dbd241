"""Tell the end of the program from that of a handler.

In a script, Ctrl-C raises `KeyboardInterrupt` in whatever runs at that moment, and asyncio then cancels every task. If
that hits a handler, the handler has not failed: its job is handed back.
"""

from __future__ import annotations

import asyncio
import signal
from typing import NoReturn


class ProgramEnd:
    """For the runs of one worker. Made in the worker's own task."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._worker = asyncio.current_task()

    def caused(self, error: BaseException | None) -> bool:
        """Whether a handler got this error because the program ends. A `KeyboardInterrupt` is then raised again."""
        if isinstance(error, asyncio.CancelledError):
            return self._worker is not None and self._worker.cancelling() > 0
        if not isinstance(error, KeyboardInterrupt) or not _is_ctrl_c():
            return False
        self._loop.call_soon(_interrupt)
        return True


def _is_ctrl_c() -> bool:
    """Whether a `KeyboardInterrupt` comes from Ctrl-C, and not from a handler's own code. At the first Ctrl-C,
    `asyncio.run` cancels a task; only the second one is raised."""
    by_python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return by_python or any(task.cancelling() for task in asyncio.all_tasks())


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt
