"""A command as a process, and what it says while it runs."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cli.commands import Start
from waiting import until


class Process:
    """A worker's process, unless another command is given, and what it logs."""

    def __init__(
        self,
        start: Start,
        tmp_path: Path,
        *options: str,
        command: tuple[str, ...] = ("worker", "shop:app"),
        **given: Any,
    ) -> None:
        self._log = tmp_path / "log"
        with self._log.open("w") as log:
            self._process = start(*command, *options, **{"stdout": log, "stderr": log, **given})

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def until(self, holds: Callable[[], object]) -> None:
        """Wait for what it does while it runs."""
        held: object = False

        def held_or_ended() -> bool:
            nonlocal held
            runs = self.runs
            held = holds()
            return bool(held) or not runs

        until(held_or_ended)
        assert held, self.log

    def says(self, words: str, times: int = 1) -> None:
        """Wait until it has logged something."""
        self.until(lambda: self.log.count(words) >= times)

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        try:
            return self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end:\n{self.log}") from None
