"""The pipe between a supervisor and one of its processes: what the process is asked to do, and that the other lives.

Not signals. Two of a kind that are sent at once arrive as one, and where systemd has sent one to every process of the
service, the supervisor's would count as the second. An order may be given twice. The end of the file means that the
supervisor is gone, however it went: on every system, and with no window in which that could be missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, Literal

from stepwell.cli import exits
from stepwell.telemetry.bus import log
from stepwell.telemetry.supervisor import SupervisorGone

if TYPE_CHECKING:
    from stepwell.worker import Worker

Order = Literal["drain", "hand back", "end"]

_BYTES: dict[Order, bytes] = {"drain": b"d", "hand back": b"h", "end": b"e"}
_ORDERS: dict[bytes, Order] = {byte: order for order, byte in _BYTES.items()}


class Lifeline:
    """A supervisor's end: give orders, or let go, as the kernel does for one that dies."""

    def __init__(self) -> None:
        # Neither end is inherited by itself, so that no process keeps the lifeline of another open.
        self.theirs, self._ours = os.pipe()

    def order(self, order: Order) -> None:
        """Tell the process; one that is gone need not hear it."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._ours, _BYTES[order])

    def handed_over(self) -> None:
        """The process has its end now: with ours closed, too, it would see that nobody is there."""
        os.close(self.theirs)

    def close(self) -> None:
        os.close(self._ours)


class Obeying:
    """A process's end, obeyed from the first moment on, in a thread: while the app is still being imported it ends on
    the spot, once it runs a worker that is stopped in order."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._worker: tuple[asyncio.AbstractEventLoop, Worker] | None = None
        threading.Thread(target=self._listen, name="stepwell-lifeline", daemon=True).start()

    def obey_with(self, loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
        """From now on stop this worker, which runs on this loop."""
        with self._lock:
            self._worker = (loop, worker)

    def _listen(self) -> None:
        while byte := os.read(self._descriptor, 1):
            self._obey(_ORDERS[byte])
        self._obey("drain")
        log(SupervisorGone())

    def _obey(self, order: Order) -> None:
        with self._lock:
            if self._worker is None:
                os._exit(exits.DONE)
            loop, worker = self._worker
        if order == "end":
            os._exit(128 + signal.SIGTERM)
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended already
            loop.call_soon_threadsafe(worker.stop if order == "drain" else worker.stop_now)
