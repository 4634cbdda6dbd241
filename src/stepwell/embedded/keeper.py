"""The keeper: a small process beside the server, which stops it once nobody uses it any more.

Locked files say who is alive, because the kernel drops a lock when its holder dies, however it dies:

    stepwell.lock   held by whoever starts or stops the server, for as long as that takes; always taken first
    users.lock      shared by all who use the server
    keeper.lock     held by the keeper
    server.lock     held by initdb, and by Postgres with every process it forks: when it is free, none is left

The last stands in the server's home, the others at the path that its users name. A lock is let go by closing
it, never by unlocking: a forked child has the same lock, and must not take it from its parent.

Runs as a script, on the standard library alone: it is up in no time, stays small, and imports nothing of the
program it was started by.
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
    """The server's first process, as it describes itself in `postmaster.pid`."""

    pid: int
    socket: Path
    ready: bool


def hold(file: Path, how: int = fcntl.LOCK_EX) -> int:
    """Lock a file and return its descriptor, which holds the lock until it is closed."""
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
        # The file was removed while we waited; its successor is the one that others will lock.
        os.close(lock)


def try_hold(file: Path) -> int | None:
    """Lock a file if that can be done at once."""
    try:
        return hold(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


def release(lock: int) -> None:
    """Let go of a lock, unless a process that we gave it to still holds it."""
    _exclusive.discard(lock)
    os.close(lock)


def is_still(file: Path, lock: int) -> bool:
    """Whether the file is the one that this lock is on; if not, it locks nobody out."""
    try:
        return os.path.samestat(file.stat(), os.fstat(lock))
    except FileNotFoundError:
        return False


def home_of(path: Path) -> Path:
    """Where the server of a path has its files: there, or where a link says."""
    link = path / ELSEWHERE
    return link.readlink() if link.is_symlink() else path


def postmaster(home: Path) -> Postmaster | None:
    """What `postmaster.pid` says. True while `server.lock` is held: who starts a server removes a stale file
    first."""
    try:
        lines = os.fsdecode((home / "data" / "postmaster.pid").read_bytes()).split("\n")
        ready = len(lines) > 7 and lines[7].strip() == "ready"
        return Postmaster(int(lines[0]), Path(lines[4]) / f".s.PGSQL.{lines[3]}", ready)
    except (FileNotFoundError, ValueError, IndexError):
        return None


def listener(master: Postmaster) -> int | None:
    """The pid of who listens on the server's socket, as far as the kernel tells; None if nobody does."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        try:
            client.connect(str(master.socket))
        except (BlockingIOError, TimeoutError):
            return master.pid  # too busy to answer is alive
        except OSError:
            return None
        if not hasattr(socket, "SO_PEERCRED"):
            return master.pid
        pid, _, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return pid


def stop(home: Path) -> None:
    """Stop the server, if one runs, and wait until it is gone: by a fast shutdown, and if that takes too long
    by an immediate one, which costs a recovery at the next start and no data. Call it with `stepwell.lock`
    held."""
    begun, sent = time.monotonic(), set[tuple[int, str]]()
    while not _is_free(home / SERVER):
        patience = time.monotonic() - begun
        if patience > STOP_SECONDS:
            return
        how = "INT" if patience < FAST_SECONDS else "QUIT"
        master = postmaster(home)
        if master and (master.pid, how) not in sent:
            if listener(master) not in (None, master.pid):
                return  # it runs in a container, in another pid namespace: so does its keeper, which stops it
            _signal(master.pid, how, home)
            sent.add((master.pid, how))
        time.sleep(0.01)


def stop_unused(path: Path, keeper: int | None = None) -> bool:
    """Stop the server if nobody uses it; the keeper's own lock goes with it."""
    mutex = hold(path / MUTEX)
    try:
        users = try_hold(path / USERS)
        if users is None:
            # It may be the keeper, which has it for a moment before it waits for our mutex. Users share it
            # and the keeper does not, so to share it is to wait for the keeper: who has it then is a user.
            release(hold(path / USERS, fcntl.LOCK_SH))
            users = try_hold(path / USERS)
        if users is None:
            return False
        try:
            stop(home_of(path))
        finally:
            release(users)
        if keeper is not None:
            # Before the mutex: whoever takes that next must see that it needs a new keeper.
            os.close(keeper)
        return True
    finally:
        release(mutex)


def keep(path: Path, keeper: int) -> None:
    """Wait until nobody uses the server, stop it, and return."""
    home, users = home_of(path), os.open(path / USERS, os.O_RDWR | os.O_CLOEXEC)
    while True:
        fcntl.flock(users, fcntl.LOCK_EX)
        # Not kept while waiting for the mutex: who starts a server takes these two the other way round.
        fcntl.flock(users, fcntl.LOCK_UN)
        try:
            ours = is_still(path / USERS, users)
            if ours and stop_unused(path, keeper):
                return
        except FileNotFoundError:
            ours = False
        if not ours:
            # The directory was removed under the server. What may be there now is somebody else's.
            if home != path:
                stop(home)
            return


_exclusive: set[int] = set()


def _leave_locks_to_the_parent() -> None:
    """A child forked by another thread in the middle of a start must not go on holding its locks. The lock on
    `users.lock` is left: the child may well use the server, too."""
    for lock in _exclusive:
        os.close(lock)
    _exclusive.clear()


os.register_at_fork(after_in_child=_leave_locks_to_the_parent)


def _is_free(file: Path) -> bool:
    """Whether nobody holds the lock. One that was removed, with the server's files, is nobody's."""
    try:
        lock = try_hold(file)
    except FileNotFoundError:
        return True
    if lock is not None:
        release(lock)
    return lock is not None


def _signal(pid: int, name: str, home: Path) -> None:
    """Signal the server as the user it runs as: root must not signal whatever pid a file of that user's
    says."""
    owner = (home / "data").stat()
    other = owner.st_uid != os.geteuid()
    subprocess.run(  # noqa: S603
        ["/bin/sh", "-c", 'kill -"$1" "$2"', "sh", name, str(pid)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,  # it may be gone by now
        user=owner.st_uid if other else None,
        group=owner.st_gid if other else None,
        extra_groups=[] if other else None,
    )


def main() -> None:
    """`keeper.py PATH DESCRIPTOR`, the latter being that of `keeper.lock`, locked and inherited."""
    path, keeper = sys.argv[1:]
    keep(Path(path), int(keeper))


if __name__ == "__main__":
    main()
