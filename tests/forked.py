"""Start Python programs as processes of their own without the third of a second that each needs to import Stepwell.

The first call starts a parent that has imported what programs need, and nothing else: no thread, no connection, no
event loop. It forks each program and tells how it ended. A program has its own arguments, environment, directory and
standard streams, and its own session if it is to have one. Unlike a program that was started by itself, its command
line, as `ps` shows it, is that of the parent: a test that looks at it starts the program by `subprocess`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

_IMPORTED = ("uvloop", "stepwell.cli.entry_point", "stepwell.worker.worker_main", "stepwell.embedded.postgres")
Stream = int | IO[Any] | None


class ForkedProcess:
    """What tests use of `subprocess.Popen`, for `python [flags] argv`. Text streams."""

    def __init__(
        self,
        argv: list[str],
        *,
        flags: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
        cwd: Path | str | None = None,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        start_new_session: bool = False,
    ) -> None:
        self._parent = parent_with(flags)
        self.returncode: int | None = None
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        opened: list[int] = []
        theirs: list[int] = []
        for number, given in enumerate((stdin, stdout, stderr)):
            if given == subprocess.PIPE:
                reading, writing = os.pipe()
                theirs.append(reading if number == 0 else writing)
                opened.append(theirs[-1])
                ours = os.fdopen(writing, "w") if number == 0 else os.fdopen(reading)
                setattr(self, ("stdin", "stdout", "stderr")[number], ours)
            elif given == subprocess.DEVNULL:
                theirs.append(os.open(os.devnull, os.O_RDWR))
                opened.append(theirs[-1])
            elif given == subprocess.STDOUT:
                theirs.append(theirs[1])
            else:
                theirs.append(number if given is None else given if isinstance(given, int) else given.fileno())
        order = {
            "argv": argv,
            "env": dict(os.environ) if env is None else env,
            "cwd": os.fspath(cwd or Path.cwd()),
            "session": start_new_session,
        }
        self.pid = self._parent.fork(order, theirs)
        for descriptor in opened:
            os.close(descriptor)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._parent.ended(self.pid, 0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._parent.ended(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Unlike a child, a program that has ended is gone at once, although nobody has asked for its exit code."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read all that it prints, and wait for its end. What it prints on stderr must fit into a pipe."""
        if self.stdin:
            self.stdin.close()
        said = [stream.read() if stream and not stream.closed else "" for stream in (self.stdout, self.stderr)]
        self.wait(timeout)
        return said[0], said[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream:
                stream.close()
        self.wait()


def run_forked(argv: list[str], cwd: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return what it printed."""
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = ForkedProcess(argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        for stream in (stdout, stderr):
            stream.seek(0)
        return subprocess.CompletedProcess(argv, code, stdout.read(), stderr.read())


class Parent:
    """The process that forks programs, as the tests see it."""

    def __init__(self, flags: tuple[str, ...]) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *flags, __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd="/",
            )
        self._lock = threading.Lock()
        self._codes: dict[int, int] = {}
        self._read = b""
        self._started: list[int] = []
        atexit.register(self._close)

    def fork(self, order: dict[str, Any], streams: list[int]) -> int:
        text = json.dumps(order).encode()
        with self._lock:
            socket.send_fds(self._socket, [len(text).to_bytes(4, "big")], streams)
            self._socket.sendall(text)
            while not self._started:
                self._hear(None)
            return self._started.pop()

    def ended(self, pid: int, timeout: float | None) -> int | None:
        """The exit code of a program, or minus the signal that ended it; None: it goes on."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                # Others may wait for their programs in other threads, so nobody waits here for long.
                left = 0.05 if deadline is None else min(max(deadline - time.monotonic(), 0), 0.05)
                if pid not in self._codes:
                    self._hear(left)
                if pid in self._codes:
                    return self._codes.pop(pid)
            if deadline is not None and time.monotonic() >= deadline:
                return None

    def _hear(self, within: float | None) -> None:
        if not select.select([self._socket], [], [], within)[0]:
            return
        read = self._socket.recv(65536)
        if not read:
            raise RuntimeError(f"the parent of the programs ended with {self._process.wait()}")
        *lines, self._read = (self._read + read).split(b"\n")
        for line in lines:
            pid, *status = map(int, line.split())
            if status:
                self._codes[pid] = os.waitstatus_to_exitcode(status[0])
            else:
                self._started.append(pid)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def parent_with(flags: tuple[str, ...]) -> Parent:
    return Parent(flags)


def serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork programs until nobody asks any more. Returns in each program what it was told."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGCHLD, signal.SIGINT)}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # With a handler set, even one that does nothing, the signal writes to the wakeup descriptor.
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake)
    programs: set[int] = set()
    while True:
        ready = select.select([connection, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            for pid in list(programs):
                gone, status = os.waitpid(pid, os.WNOHANG)
                if gone:
                    programs.discard(pid)
                    connection.sendall(f"{pid} {status}\n".encode())
        if connection not in ready:
            continue
        length, streams, _, _ = socket.recv_fds(connection, 4, 3)
        if not length:
            return None
        text = b""
        while len(text) < int.from_bytes(length, "big"):
            text += connection.recv(int.from_bytes(length, "big") - len(text))
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            for descriptor in (connection.detach(), woken, wake, *streams):
                os.close(descriptor)
            return json.loads(text)
        programs.add(pid)
        for stream in streams:
            os.close(stream)
        connection.sendall(f"{pid}\n".encode())


def become(order: dict[str, Any]) -> tuple[str, str, list[str]]:
    """Take over the program's place. Returns its kind, which is "-c", "-m" or "", and what to run."""
    import random

    if order["session"]:
        os.setsid()
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    random.seed()
    # As Python opens them, which depends on what they are.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    kind, what, *args = order["argv"] if order["argv"][0] in ("-c", "-m") else ["", *order["argv"]]
    sys.path[0] = str(Path(what).parent.resolve()) if not kind else order["cwd"] if kind == "-m" else ""
    sys.argv = [kind or what, *args]
    return kind, what, sys.argv


if __name__ == "__main__":
    import importlib
    import runpy

    for each in _IMPORTED:
        importlib.import_module(each)
    told = serve(socket.socket(fileno=int(sys.argv[1])))
    if told is not None:
        how, name, _ = become(told)
        if how == "-m":
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        elif how == "-c":
            exec(name, {"__name__": "__main__"})
        else:
            runpy.run_path(name, run_name="__main__")
