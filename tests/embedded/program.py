"""A process that uses an embedded Postgres, for tests that kill it; and how to wait for what follows."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from stepwell.embedded import lifetime
from tests.forked import ForkedProcess

START = """
import os, sys
from pathlib import Path
from stepwell.embedded import EmbeddedPostgres
embedded = EmbeddedPostgres(Path(sys.argv[1]))
"""
USE = """
print(embedded.start(), flush=True)
sys.stdin.read()
"""


class Program:
    """Starts the server at a path, says its dsn, stays until its stdin is closed. Never calls `stop()`."""

    def __init__(self, path: Path, body: str = USE) -> None:
        self.process = ForkedProcess(
            ["-c", START + body, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def line(self) -> str:
        """The next line it prints."""
        assert self.process.stdout
        line = self.process.stdout.readline().strip()
        if not line:
            raise AssertionError(f"the program printed nothing: {self.process.communicate()[1]}")
        return line

    def leave(self) -> None:
        """Let it come to its end, as any program does."""
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(60) == 0

    def kill(self) -> None:
        """End it, by SIGKILL."""
        self.process.kill()
        self.process.wait(60)

    def close(self) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until the condition holds, however long the machine takes, within reason."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.005)


def home(path: Path) -> Path:
    """Where the server of a path has its files."""
    elsewhere = path / "elsewhere"
    return elsewhere.readlink() if elsewhere.is_symlink() else path


def pid(path: Path) -> int:
    """The pid of the server at a path."""
    master = lifetime.postmaster(home(path))
    assert master, f"no server runs at {path}"
    return master.pid


def crash(path: Path, how: signal.Signals = signal.SIGKILL) -> int:
    """Signal the server, wait until it has taken notice, and return its pid."""
    master = lifetime.postmaster(home(path))
    assert master, f"no server runs at {path}"
    os.kill(master.pid, how)

    def has_noticed() -> bool:
        now = lifetime.postmaster(home(path))
        return now is None or not now.ready or lifetime.listener(now) is None

    until(has_noticed, f"the server at {path} has noticed {how.name}")
    return master.pid


def is_free(lock: Path) -> bool:
    """Whether nobody holds the lock, or nobody ever got so far as to make it."""
    if not lock.exists():
        return True
    held = lifetime.try_hold(lock)
    if held is not None:
        lifetime.release(held)
    return held is not None


def runs(path: Path) -> bool:
    """Whether any process of the server, or of initdb, is alive."""
    return not is_free(home(path) / lifetime.SERVER)


def keeper_pid(path: Path) -> int:
    """The pid of the keeper at a path, found as a person would find it."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,args="], capture_output=True, text=True, check=True)
    found = [line for line in listed.stdout.splitlines() if "lifetime.py" in line and f" {path} " in line]
    assert len(found) == 1, found
    return int(found[0].split()[0])
