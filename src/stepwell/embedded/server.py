"""Create the database, start the server and wait until it answers. `lifetime` stops it."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

from stepwell.embedded import lifetime
from stepwell.embedded.paths import ServerPaths
from stepwell.embedded.settings import arguments, write_settings
from stepwell.embedded.socket_dir import socket_dir
from stepwell.embedded.user import User, current_user
from stepwell.errors import EmbeddedError
from stepwell.errors.text import describe_exit

START_SECONDS = 60.0
_LOG_BYTES = 10_000_000


def major_version(bin_dir: Path, user: User) -> int:
    """The major version of these binaries. Also checks that this user can run them."""
    try:
        said = user.run([bin_dir / "initdb", "--version"])
    except OSError as error:
        raise EmbeddedError(f"cannot run {bin_dir / 'initdb'} as user {user.name!r}: {error.strerror}") from error
    found = re.search(r"\(PostgreSQL\) (\d+)", said.stdout)
    if said.returncode or not found:
        raise EmbeddedError(f"{bin_dir / 'initdb'} does not work on this machine: {_end(said.stdout)}")
    return int(found[1])


def run_server(paths: ServerPaths, bin_dir: Path, user: User) -> lifetime.Postmaster:
    """Make sure that the server runs and answers, whatever state it or a previous server left behind. Call this with
    the mutex held: then nobody else starts or stops the server, and only a crash can interfere."""
    major = major_version(bin_dir, user)
    _check_version(paths, major, bin_dir)
    begun, log_begins = time.monotonic(), None
    while time.monotonic() - begun < START_SECONDS:
        lock = lifetime.try_hold(paths.home / lifetime.SERVER)
        if lock is not None:
            try:
                if log_begins is not None:
                    raise EmbeddedError(_did_not_start(paths, "it exited at once", log_begins))
                if not paths.data.exists():
                    _initialise(paths, bin_dir, major, user, lock)
                log_begins = _launch(paths, bin_dir, user, lock)
            finally:
                lifetime.release(lock)
        master = lifetime.postmaster(paths.home)
        if master and master.ready:
            if lifetime.listener(master) is not None:
                return master
            # It was killed and its children are still exiting, or its socket was removed.
            lifetime.stop(paths.home)
        time.sleep(0.005)
    raise EmbeddedError(_did_not_start(paths, f"it was not ready after {START_SECONDS:.0f} seconds", log_begins or 0))


def _check_version(paths: ServerPaths, major: int, bin_dir: Path) -> None:
    if not paths.data.exists():
        return
    try:
        made_by = (paths.data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        raise EmbeddedError(f"{paths.data} is not a Postgres database: move it away, or choose another path") from None
    if made_by != str(major):
        raise EmbeddedError(
            f"{paths.path} holds a database of Postgres {made_by}, and {bin_dir} is Postgres {major}: "
            f"dump it with a Postgres {made_by} and load it at another path, or choose another path"
        )


def _initialise(paths: ServerPaths, bin_dir: Path, major: int, user: User, lock: int) -> None:
    """Create the database under another name first, so that the final name always means a complete one."""
    new = paths.home / "data.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(0o700)
    user.own(new)
    # Every machine gets the same encoding and sort order.
    options = ["--encoding=UTF8", "--locale=C", "--data-checksums", "--no-instructions"]
    if major >= 17:
        # It sorts like C, and knows upper and lower case beyond ASCII.
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    options += ["--username=postgres", "--auth-local=peer", "--auth-host=reject"]
    try:
        # initdb inherits the lock: if we are killed it goes on, and the next process waits until it has ended.
        done = user.run([bin_dir / "initdb", "-D", new, *options], keep=[lock])
        if done.returncode:
            raise EmbeddedError(
                f"cannot create a database in {paths.path}: initdb {describe_exit(done.returncode)}\n"
                f"{_end(done.stdout)}\n{_advice(paths)}"
            )
        new.rename(paths.data)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    parent = os.open(paths.home, os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _launch(paths: ServerPaths, bin_dir: Path, user: User, lock: int) -> int:
    """Start Postgres; return the offset in the log at which its output begins."""
    directory = socket_dir(paths.home, user)
    # We hold the lock, so no process of a previous server is left. Postgres would only check whether the pids in these
    # files are alive, and would mistake another process with such a pid for a server.
    socket = directory / ".s.PGSQL.5432"
    for stale in (paths.data / "postmaster.pid", socket, socket.with_name(f"{socket.name}.lock")):
        stale.unlink(missing_ok=True)
    write_settings(paths.home, current_user())
    if paths.log.exists() and paths.log.stat().st_size > _LOG_BYTES:
        paths.log.replace(paths.log.with_suffix(".log.old"))
    log = open_log(paths)
    try:
        begins = os.fstat(log).st_size
        user.spawn([bin_dir / "postgres", *arguments(paths.home, directory)], output=log, keep=[lock])
    finally:
        os.close(log)
    return begins


def open_log(paths: ServerPaths) -> int:
    return os.open(paths.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _did_not_start(paths: ServerPaths, why: str, log_begins: int) -> str:
    with paths.log.open("rb") as log:
        log.seek(log_begins)
        said = log.read().decode(errors="replace")
    what = f"the Postgres in {paths.path} did not start: {why}. The end of {paths.log}:"
    return f"{what}\n{_end(said)}\n{_advice(paths)}"


def _advice(paths: ServerPaths) -> str:
    left = shutil.disk_usage(paths.home).free // 1_000_000
    if left < 100:
        return f"The disk has {left} MB left: free some, then start again."
    return "Fix this, then start again."


def _end(output: str) -> str:
    return "\n".join(f"    {line}" for line in output.strip().splitlines()[-8:])
