"""A worker process, as its supervisor has it."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Sequence

from stepwell.cli.lifeline import Lifeline, Order


class Child:
    """A process that was started, and is asked to stop over its lifeline. `ended` becomes its exit code.

    It has a session of its own: Ctrl-C on a terminal reaches the whole group, and would come to it twice.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._lifeline = Lifeline()
        try:
            self._process = subprocess.Popen(  # noqa: S603
                [*command, "--lifeline", str(self._lifeline.theirs)],
                stdin=subprocess.DEVNULL,
                pass_fds=[self._lifeline.theirs],
                start_new_session=True,
            )
        except BaseException:
            self._lifeline.close()
            raise
        finally:
            self._lifeline.handed_over()
        self._began = time.monotonic()
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._began

    def look(self) -> None:
        """Notice its end. To be called when a process has ended, whichever it was."""
        code = self._process.poll()
        if code is not None and not self.ended.done():
            self._lifeline.close()
            self.ended.set_result(code)

    def order(self, order: Order) -> None:
        """Ask it to stop. The same may be asked twice, and of a process that has ended."""
        if not self.ended.done():
            self._lifeline.order(order)

    def kill(self) -> None:
        if not self.ended.done():
            self._process.kill()
