"""The lifeline: a pipe over which a supervisor sends commands to a worker process, and whose end means that the
supervisor is gone.

Signals would not do. Two equal signals sent at once arrive as one, and systemd signals every process of a service, so
the supervisor's own signal would count as the second. A command can be repeated without harm. End of file reaches the
process however the supervisor died, on every system, and cannot be missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from typing import Literal, Protocol, assert_never

from stepwell.supervisor import exit_codes
from stepwell.telemetry.bus import log
from stepwell.telemetry.supervisor import SupervisorGone

Command = Literal["drain", "hand back", "end"]

_BYTES: dict[Command, bytes] = {"drain": b"d", "hand back": b"h", "end": b"e"}
_COMMANDS: dict[bytes, Command] = {byte: command for command, byte in _BYTES.items()}


class Lifeline:
    """The supervisor's end. The kernel closes it when the supervisor dies."""

    def __init__(self) -> None:
        # Neither descriptor is inheritable, so no process can keep the lifeline of another open.
        self.read_end, self._write_end = os.pipe()

    def send(self, command: Command) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write_end, _BYTES[command])

    def close_read_end(self) -> None:
        """Close our copy once the process has its own, so that a write to a dead process fails."""
        os.close(self.read_end)

    def close(self) -> None:
        os.close(self._write_end)


class Stoppable(Protocol):
    """What a process under a supervisor runs: `stop` drains it, `stop_now` makes it hand back its work."""

    def stop(self) -> None: ...
    def stop_now(self) -> None: ...


class LifelineListener:
    """The worker process's end, read by a thread from the start. While the app is still being imported, any command
    ends the process on the spot. Once a worker runs, the commands stop that worker in order."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._worker: tuple[asyncio.AbstractEventLoop, Stoppable] | None = None
        threading.Thread(target=self._listen, name="stepwell-lifeline", daemon=True).start()

    def control(self, loop: asyncio.AbstractEventLoop, worker: Stoppable) -> None:
        with self._lock:
            self._worker = (loop, worker)

    def _listen(self) -> None:
        while byte := os.read(self._descriptor, 1):
            self._obey(_COMMANDS[byte])
        self._obey("drain")
        log(SupervisorGone())

    def _obey(self, command: Command) -> None:
        with self._lock:
            if self._worker is None:
                os._exit(exit_codes.DONE)
            loop, worker = self._worker
        match command:
            case "end":
                os._exit(128 + signal.SIGTERM)
            case "drain":
                stop = worker.stop
            case "hand back":
                stop = worker.stop_now
            case _:
                assert_never(command)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has ended
            loop.call_soon_threadsafe(stop)
