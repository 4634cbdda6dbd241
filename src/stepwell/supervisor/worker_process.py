"""One worker process, seen from its supervisor."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Sequence

from stepwell.supervisor.lifeline import Command, Lifeline


class WorkerProcess:
    """A started process. The supervisor sends it commands over its lifeline; `ended` resolves to its exit code. It runs
    in a session of its own: Ctrl-C reaches the terminal's whole process group, so it would otherwise get each signal
    twice."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._lifeline = Lifeline()
        try:
            self._process = subprocess.Popen(  # noqa: S603
                [*argv, "--lifeline", str(self._lifeline.read_end)],
                stdin=subprocess.DEVNULL,
                pass_fds=[self._lifeline.read_end],
                start_new_session=True,
            )
        except BaseException:
            self._lifeline.close()
            raise
        finally:
            self._lifeline.close_read_end()
        self._began = time.monotonic()
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def age(self) -> float:
        return time.monotonic() - self._began

    def check(self) -> None:
        """Resolve `ended` if the process has ended. Call this on every SIGCHLD, whichever process it is for."""
        code = self._process.poll()
        if code is not None and not self.ended.done():
            self._lifeline.close()
            self.ended.set_result(code)

    def send(self, command: Command) -> None:
        """Send a command. Repeating one is harmless, and so is sending one to a process that has ended."""
        if not self.ended.done():
            self._lifeline.send(command)

    def kill(self) -> None:
        if not self.ended.done():
            self._process.kill()
