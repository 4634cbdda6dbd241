"""Worker processes: start them, signal them, hear what they say; and how to wait for what follows."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.forked import ForkedProcess

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, within: float = 60) -> T:
    """Wait until the condition holds and return what it gave."""
    deadline = time.monotonic() + within
    while not (held := condition()):
        assert time.monotonic() < deadline, f"waited {within:g} s in vain until {what}"
        time.sleep(0.01)
    return held


class WorkerProcess:
    """One run of a program that says its worker's events, a line of JSON each, and reads what it is told."""

    def __init__(self, program: Path, told: dict[str, object]) -> None:
        self._process = ForkedProcess(
            [str(program)],
            flags=("-X", "faulthandler", "-W", "always::ResourceWarning"),
            env={**os.environ, "TOLD": json.dumps(told)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def heard(self, event: str) -> list[dict[str, Any]]:
        """The events of this name so far."""
        said = [json.loads(line) for line in list(self.lines) if line.startswith("{")]
        return [each for each in said if each["event"] == event]

    @property
    def noise(self) -> list[str]:
        """What it printed that is no event: tracebacks, mostly."""
        return [line for line in self.lines if not line.startswith("{")]

    def has_started(self) -> bool:
        assert self.alive, f"worker {self.pid} ended with {self._process.returncode} before it started: {self.lines}"
        return bool(self.heard("WorkerStarted"))

    def send(self, what: signal.Signals) -> None:
        self._process.send_signal(what)

    def kill(self) -> None:
        """End it by SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait(60)

    def wait(self, within: float = 60) -> int:
        """Wait until it ends by itself and return its exit code."""
        code = self._process.wait(within)
        self._reader.join(5)
        return code

    def close(self) -> None:
        """End it and whatever it left behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(20)
        self._reader.join(5)
        if self._process.stdout:
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout
        self.lines.extend(iter(self._process.stdout.readline, ""))


class Fleet:
    """The workers of a test."""

    def __init__(self, dsn: str, ledger_dsn: str) -> None:
        self.dsn = dsn
        self._ledger_dsn = ledger_dsn
        self.all: list[WorkerProcess] = []

    @property
    def alive(self) -> list[WorkerProcess]:
        return [worker for worker in self.all if worker.alive]

    def launch(
        self,
        *,
        dsn: str | None = None,
        lease: str = "20s",
        renew: str = "5s",
        concurrency: int = 10,
        queues: dict[str, int] | None = None,
        program: str = "program.py",
    ) -> WorkerProcess:
        """Start a worker, with Stepwell's own defaults, and do not wait for it."""
        settings: dict[str, object] = {"lease": lease, "renew": renew}
        settings |= {"queues": queues} if queues else {"concurrency": concurrency}
        told: dict[str, object] = {"dsn": dsn or self.dsn, "ledger_dsn": self._ledger_dsn, "settings": settings}
        worker = WorkerProcess(Path(__file__).with_name(program), told)
        self.all.append(worker)
        return worker

    def start(
        self,
        *,
        dsn: str | None = None,
        lease: str = "20s",
        renew: str = "5s",
        concurrency: int = 10,
        queues: dict[str, int] | None = None,
        program: str = "program.py",
    ) -> WorkerProcess:
        """Start a worker and wait until it claims jobs."""
        worker = self.launch(dsn=dsn, lease=lease, renew=renew, concurrency=concurrency, queues=queues, program=program)
        until(worker.has_started, "the worker has started")
        return worker

    def close(self) -> None:
        for worker in self.all:
            worker.close()
        for worker in self.all:
            # Shown by pytest if the test failed.
            print(f"worker {worker.pid}:", *worker.lines[-80:], sep="\n  ")
