"""The lifetime of a server: the locks that say who uses it, and the keeper, a small process that stops it when nobody
does.

The locks are on files, because the kernel drops a lock when its holder dies, however it dies:

    stepwell.lock   the mutex: held while a process starts or stops the server; always taken first
    users.lock      shared by all users of the server
    keeper.lock     held by the keeper
    server.lock     held by initdb, and by Postgres and every process it forks: when it is free, none is left

server.lock is in the server's home, the others at the path that users name. A lock is released by closing its file,
never by unlocking: a forked child shares the lock, and must not release its parent's.

This file is also the keeper's program. It runs as a script with the standard library alone, so that it starts fast,
stays small, and imports nothing of the program that started it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

MUTEX, USERS, KEEPER, SERVER = "stepwell.lock", "users.lock", "keeper.lock", "server.lock"
ELSEWHERE = "elsewhere"
FAST_SECONDS, STOP_SECONDS = 30.0, 60.0


class Postmaster(NamedTuple):
    """The server's main process, as `postmaster.pid` describes it."""

    pid: int
    socket: Path
    ready: bool


def hold(file: Path, how: int = fcntl.LOCK_EX) -> int:
    """Lock a file; return its descriptor, which holds the lock until it is closed."""
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, how)
            current = is_still(file, lock)
        except BaseException:
            os.close(lock)
            raise
        if current:
            if how & fcntl.LOCK_EX:
                _exclusive.add(lock)
            return lock
        # The file was removed while we waited, and others will lock its successor.
        os.close(lock)


def try_hold(file: Path) -> int | None:
    try:
        return hold(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


def release(lock: int) -> None:
    """Release a lock. A process that inherited it goes on holding it."""
    _exclusive.discard(lock)
    os.close(lock)


def is_still(file: Path, lock: int) -> bool:
    """Whether the lock is on the file that now has this name; if not, it excludes nobody."""
    try:
        return os.path.samestat(file.stat(), os.fstat(lock))
    except FileNotFoundError:
        return False


def home_of(path: Path) -> Path:
    """The home of the server of a path: the path itself, or where its link points."""
    link = path / ELSEWHERE
    return link.readlink() if link.is_symlink() else path


def postmaster(home: Path) -> Postmaster | None:
    """The content of `postmaster.pid`, valid while `server.lock` is held: a start removes a stale file first."""
    try:
        lines = os.fsdecode((home / "data" / "postmaster.pid").read_bytes()).split("\n")
        ready = len(lines) > 7 and lines[7].strip() == "ready"
        return Postmaster(int(lines[0]), Path(lines[4]) / f".s.PGSQL.{lines[3]}", ready)
    except (FileNotFoundError, ValueError, IndexError):
        return None


def listener(master: Postmaster) -> int | None:
    """The pid of the process that listens on the server's socket, if the kernel tells; None if there is none."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        try:
            client.connect(str(master.socket))
        except (BlockingIOError, TimeoutError):
            return master.pid  # a busy server is alive
        except OSError:
            return None
        if not hasattr(socket, "SO_PEERCRED"):
            return master.pid
        pid, _, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return pid


def stop(home: Path) -> None:
    """Stop the server, if one runs, and wait until it is gone. Call this with `stepwell.lock` held. If a fast shutdown
    takes too long, an immediate one follows, which costs a recovery at the next start but no data."""
    begun, sent = time.monotonic(), set[tuple[int, str]]()
    while not _is_free(home / SERVER):
        patience = time.monotonic() - begun
        if patience > STOP_SECONDS:
            return
        how = "INT" if patience < FAST_SECONDS else "QUIT"
        master = postmaster(home)
        if master and (master.pid, how) not in sent:
            if listener(master) not in (None, master.pid):
                return  # it runs in another pid namespace, a container; so does its keeper, which stops it
            _signal(master.pid, how, home)
            sent.add((master.pid, how))
        time.sleep(0.01)


def stop_unused(path: Path, keeper: int | None = None) -> bool:
    """Stop the server if nobody uses it. `keeper` is the lock of the keeper that calls this; it is released, too."""
    mutex = hold(path / MUTEX)
    try:
        users = try_hold(path / USERS)
        if users is None:
            # The keeper may hold it for a moment before it waits for our mutex. Users share the lock and the keeper
            # does not, so taking it shared waits for the keeper only: if it is still held then, a user holds it.
            release(hold(path / USERS, fcntl.LOCK_SH))
            users = try_hold(path / USERS)
        if users is None:
            return False
        try:
            stop(home_of(path))
        finally:
            release(users)
        if keeper is not None:
            # Before the mutex is released: the next process to take that must see that it needs a new keeper.
            os.close(keeper)
        return True
    finally:
        release(mutex)


def keep(path: Path, keeper: int) -> None:
    home, users = home_of(path), os.open(path / USERS, os.O_RDWR | os.O_CLOEXEC)
    while True:
        fcntl.flock(users, fcntl.LOCK_EX)
        # Not held while waiting for the mutex: starting a server takes the two locks in the other order.
        fcntl.flock(users, fcntl.LOCK_UN)
        try:
            ours = is_still(path / USERS, users)
            if ours and stop_unused(path, keeper):
                return
        except FileNotFoundError:
            ours = False
        if not ours:
            # The directory was removed under the server. A directory of that name now belongs to somebody else.
            if home != path:
                stop(home)
            return


_exclusive: set[int] = set()


def _leave_locks_to_the_parent() -> None:
    """Close the locks in a forked child, which another thread may have forked in the middle of a start. The lock on
    `users.lock` stays: the child may use the server, too."""
    for lock in _exclusive:
        os.close(lock)
    _exclusive.clear()


os.register_at_fork(after_in_child=_leave_locks_to_the_parent)


def _is_free(file: Path) -> bool:
    """Whether nobody holds the lock. A removed file counts as free."""
    try:
        lock = try_hold(file)
    except FileNotFoundError:
        return True
    if lock is not None:
        release(lock)
    return lock is not None


def _signal(pid: int, name: str, home: Path) -> None:
    """Signal the server as the user it runs as: root must not signal an arbitrary pid from that user's file."""
    owner = (home / "data").stat()
    other = owner.st_uid != os.geteuid()
    subprocess.run(  # noqa: S603
        ["/bin/sh", "-c", 'kill -"$1" "$2"', "sh", name, str(pid)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,  # the server may be gone by now
        user=owner.st_uid if other else None,
        group=owner.st_gid if other else None,
        extra_groups=[] if other else None,
    )


def main() -> None:
    """Run the keeper: `lifetime.py PATH DESCRIPTOR`, with the inherited descriptor of the locked `keeper.lock`."""
    path, keeper = sys.argv[1:]
    keep(Path(path), int(keeper))


if __name__ == "__main__":
    main()
