"""The real workers of a round: processes that are killed, and replaced."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from .findings import Findings

_CUT_OFF = ("AdminShutdown", "QueryCanceled", "OperationalError")
_ROOT = Path(__file__).parents[2]


class WorkerProcess:
    """One of them, with what it has printed."""

    def __init__(self, dsn: str) -> None:
        self._log: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 it lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", str(Path(__file__).with_name("program.py"))],
            env={**os.environ, "STEPWELL_DATABASE_URL": dsn, "PYTHONPATH": f"{_ROOT / 'src'}"},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._ended_by_us = False

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self, by: signal.Signals) -> None:
        """End it and its children by this signal, and wait until it is gone."""
        self._ended_by_us = True
        if self.alive:
            if by == signal.SIGKILL:
                with contextlib.suppress(ProcessLookupError):  # it has ended in this moment
                    os.killpg(self.pid, by)
            else:
                self._process.send_signal(by)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)  # faulthandler prints what its threads do
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait(20)
            raise

    def said(self) -> str:
        """What it has printed."""
        self._log.seek(0)
        return self._log.read()

    def report(self, findings: Findings) -> None:
        """Whatever it has done that a worker must not do, once it has ended."""
        said = self.said()
        self._log.close()
        code = self._process.returncode
        # Until it has started, it may give up when its session is killed: whoever starts it hears of that.
        if "\nstarted" not in f"\n{said}" and said.rstrip() and any(word in said for word in _CUT_OFF):
            return
        # Without an error it ends only when somebody asked the workers to stop.
        if code != 0 and not self._ended_by_us:
            findings.add(f"a worker ended by itself with {code}", said[-3000:])
        elif "Traceback" in said:
            findings.add("a worker printed a traceback", said[-3000:])


class Workers:
    """So many at a time."""

    def __init__(self, dsn: str, findings: Findings) -> None:
        self._dsn = dsn
        self._findings = findings
        self._all: list[WorkerProcess] = []

    def keep(self, count: int) -> None:
        """Start what is missing, and report what has ended."""
        for worker in [worker for worker in self._all if not worker.alive]:
            self._all.remove(worker)
            worker.report(self._findings)
        while len(self._all) < count:
            self._all.append(WorkerProcess(self._dsn))

    def end_one(self, place: float, by: signal.Signals) -> None:
        """End one of them."""
        if self._all:
            worker = self._all.pop(int(place * len(self._all)))
            self._end(worker, by)

    def end_all(self, by: signal.Signals) -> None:
        while self._all:
            self._end(self._all.pop(), by)

    def _end(self, worker: WorkerProcess, by: signal.Signals) -> None:
        try:
            worker.end(by)
        except subprocess.TimeoutExpired:
            self._findings.add("a worker did not stop within 20 s of SIGTERM", worker.said()[-6000:])
        worker.report(self._findings)
