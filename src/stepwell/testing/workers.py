"""Worker processes for a sweep, forked one after the other by a process that has imported the program once."""

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
from stepwell.testing.sabotage import CrashPoint

_PATIENCE = 60.0
_LONGEST_DYING = 0.1


class Workers:
    """One worker at a time."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._read, theirs = os.pipe()
        # As here: the program is to be found wherever it was.
        path = os.pathsep.join(place for place in sys.path if place)
        self._zygote = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "stepwell.testing.zygote", program, str(theirs)],
            stdin=subprocess.PIPE,
            stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else subprocess.DEVNULL,
            pass_fds=(theirs,),
            env={**os.environ, "PYTHONPATH": path},
        )
        os.close(theirs)
        self._pending = b""
        self._said: list[dict[str, Any]] = []
        self.pid: int | None = None
        """Of the worker that runs; None: none does."""
        self._arming = 0
        self.deaths: list[str] = []
        """At which writes workers were killed since the run began."""
        self.dead: list[int] = []
        """The pids of those whose jobs are still to be rescued."""
        self._await("loaded")

    def start(self, database: str, *, concurrency: int, always_replay: bool) -> None:
        """Start one, and do not wait until it claims."""
        self._tell(do="start", database=database, concurrency=concurrency, always_replay=always_replay)
        self.pid = self._await("started")["started"]

    def kill(self) -> None:
        """Kill the one that runs, if any, and note its death."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it is dead already, and that was not heard yet
                os.kill(self.pid, signal.SIGKILL)
        while self.pid is not None:
            self.look(1)

    def arm(self, point: CrashPoint | None) -> None:
        """Have the worker that runs, or the next, killed there. Writes are counted from here."""
        self._tell(do="arm", write=point.write if point else 0, when=point.when if point else "before")
        self._arming = self._await("armed")["armed"]

    def writes(self) -> tuple[int, list[int]]:
        """How many there were, and which of them were claims."""
        self._tell(do="count")
        said = self._await("writes")
        return said["writes"], said["claims"]

    def look(self, within: float) -> None:
        """Wait so long for a death, and note it."""
        self._hear(within)
        for said in [said for said in self._said if "died" in said]:
            self._said.remove(said)
            if said["died"] == self.pid:
                self.pid = None
            if not said["killed"]:
                raise ConfigError(f"a worker of {self._program} ended by itself: what it printed says why")
            self.dead.append(said["died"])
            arming, _, name = said["at"].partition(" ")
            # One that was killed at the last write of the run before may be heard of only now.
            if arming == str(self._arming):
                self.deaths.append(name)

    def await_death(self) -> bool:
        """Wait for one that is about to be killed. False: it is not, whatever it was."""
        deadline = time.monotonic() + _LONGEST_DYING
        while self.pid is not None and time.monotonic() < deadline:
            self.look(0.01)
        return self.pid is None

    def close(self) -> None:
        """End all of them."""
        if self._zygote.stdin is not None:
            self._zygote.stdin.close()
        self._zygote.wait(20)
        os.close(self._read)

    def _tell(self, **what: Any) -> None:
        assert self._zygote.stdin is not None
        self._zygote.stdin.write(json.dumps(what).encode() + b"\n")
        self._zygote.stdin.flush()

    def _await(self, word: str) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE
        while True:
            for said in self._said:
                if word in said and "died" not in said:
                    self._said.remove(said)
                    return said
            if time.monotonic() > deadline or not self._hear(_PATIENCE):
                raise ConfigError(f"{self._program} could not be run for the sweep: what it printed says why")

    def _hear(self, within: float) -> bool:
        """Take in what is said; False: nothing more will be."""
        if not select.select([self._read], [], [], within)[0]:
            return True
        read = os.read(self._read, 65536)
        *lines, self._pending = (self._pending + read).split(b"\n")
        self._said += [json.loads(line) for line in lines]
        return bool(read)


def _has_descriptor(stream: Any) -> bool:
    try:
        stream.fileno()
    except (OSError, AttributeError, ValueError):
        return False
    return True
