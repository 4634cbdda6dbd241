"""The worker processes of a sweep, one at a time, forked by a `fork_server` that has imported the program once."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

from stepwell.errors import ConfigError
from stepwell.testing.crash_injection import CrashPoint

_PATIENCE = 60.0
_LONGEST_DYING = 0.1


class SweepWorkers:
    """Starts, arms and kills one worker at a time, by commands to the fork server."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._read, theirs = os.pipe()
        # The fork server finds the program where this process would.
        path = os.pathsep.join(place for place in sys.path if place)
        self._server = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "stepwell.testing.fork_server", program, str(theirs)],
            stdin=subprocess.PIPE,
            stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else subprocess.DEVNULL,
            pass_fds=(theirs,),
            env={**os.environ, "PYTHONPATH": path},
        )
        os.close(theirs)
        self._pending = b""
        self._reports: list[dict[str, Any]] = []
        self.pid: int | None = None
        """The pid of the running worker; None: none runs."""
        self._arming = 0
        self.deaths: list[str] = []
        """The writes at which workers were killed since the run began."""
        self.dead: list[int] = []
        """The pids of killed workers whose jobs are not rescued yet."""
        self._await("loaded")

    def start(self, database: str, *, concurrency: int, always_replay: bool) -> None:
        self._send(do="start", database=database, concurrency=concurrency, always_replay=always_replay)
        self.pid = self._await("started")["started"]

    def kill(self) -> None:
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it has died already, which was not reported yet
                os.kill(self.pid, signal.SIGKILL)
        while self.pid is not None:
            self.check(1)

    def arm(self, point: CrashPoint | None) -> None:
        """Kill the running worker, or the next, at this point. Writes are counted from here."""
        self._send(do="arm", write=point.write if point else 0, when=point.when if point else "before")
        self._arming = self._await("armed")["armed"]

    def writes(self) -> tuple[int, list[int]]:
        self._send(do="count")
        said = self._await("writes")
        return said["writes"], said["claims"]

    def check(self, within: float) -> None:
        self._read_reports(within)
        for said in [said for said in self._reports if "died" in said]:
            self._reports.remove(said)
            if said["died"] == self.pid:
                self.pid = None
            if not said["killed"]:
                raise ConfigError(f"a worker of {self._program} ended by itself: see its output")
            self.dead.append(said["died"])
            arming, _, name = said["at"].partition(" ")
            # A worker killed at the last write of the previous run may be reported only now.
            if arming == str(self._arming):
                self.deaths.append(name)

    def await_death(self) -> bool:
        """Wait for a worker that should be about to die. Returns False if it does not."""
        deadline = time.monotonic() + _LONGEST_DYING
        while self.pid is not None and time.monotonic() < deadline:
            self.check(0.01)
        return self.pid is None

    def close(self) -> None:
        if self._server.stdin is not None:
            self._server.stdin.close()
        self._server.wait(20)
        os.close(self._read)

    def _send(self, **command: Any) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(command).encode() + b"\n")
        self._server.stdin.flush()

    def _await(self, word: str) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE
        while True:
            for said in self._reports:
                if word in said and "died" not in said:
                    self._reports.remove(said)
                    return said
            if time.monotonic() > deadline or not self._read_reports(_PATIENCE):
                raise ConfigError(f"{self._program} could not be run for the sweep: see its output")

    def _read_reports(self, within: float) -> bool:
        """Read reports from the fork server. Returns False once it has ended."""
        if not select.select([self._read], [], [], within)[0]:
            return True
        read = os.read(self._read, 65536)
        *lines, self._pending = (self._pending + read).split(b"\n")
        self._reports += [json.loads(line) for line in lines]
        return bool(read)


def _has_descriptor(stream: Any) -> bool:
    try:
        stream.fileno()
    except (OSError, AttributeError, ValueError):
        return False
    return True
