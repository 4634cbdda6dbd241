"""The server: make its database, start it, and wait until it answers.  Stopping it is the keeper's."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from pathlib import Path

from stepwell.embedded import keeper
from stepwell.embedded.place import Place
from stepwell.embedded.settings import arguments, write_settings
from stepwell.embedded.socket_dir import socket_dir
from stepwell.embedded.user import User, current_user
from stepwell.errors import EmbeddedError

START_SECONDS = 60.0
_LOG_BYTES = 10_000_000


def major_version(bin_dir: Path, user: User) -> int:
    """The major version of these binaries. Also the proof that this user can run them."""
    try:
        said = user.run([bin_dir / "initdb", "--version"])
    except OSError as error:
        raise EmbeddedError(f"cannot run {bin_dir / 'initdb'} as user {user.name!r}: {error.strerror}") from error
    found = re.search(r"\(PostgreSQL\) (\d+)", said.stdout)
    if said.returncode or not found:
        raise EmbeddedError(f"{bin_dir / 'initdb'} does not work on this machine: {_end(said.stdout)}")
    return int(found[1])


def run_server(place: Place, bin_dir: Path, user: User) -> keeper.Postmaster:
    """Make sure that the server runs and answers, whatever it or a former one was left in.

    Call it with the mutex held: then nobody else starts or stops it, and only a crash gets in the way.
    """
    major = major_version(bin_dir, user)
    _check_version(place, major, bin_dir)
    begun, log_begins = time.monotonic(), None
    while time.monotonic() - begun < START_SECONDS:
        lock = keeper.try_hold(place.home / keeper.SERVER)
        if lock is not None:
            try:
                if log_begins is not None:
                    raise EmbeddedError(_did_not_start(place, "it ended at once", log_begins))
                if not place.data.exists():
                    _initialise(place, bin_dir, major, user, lock)
                log_begins = _launch(place, bin_dir, user, lock)
            finally:
                keeper.release(lock)
        master = keeper.postmaster(place.home)
        if master and master.ready:
            if keeper.listener(master) is not None:
                return master
            # Ready, yet nobody listens: it was killed, and its children are leaving; or its socket is gone.
            keeper.stop(place.home)
        time.sleep(0.005)
    raise EmbeddedError(_did_not_start(place, f"it was not ready after {START_SECONDS:.0f} seconds", log_begins or 0))


def _check_version(place: Place, major: int, bin_dir: Path) -> None:
    if not place.data.exists():
        return
    try:
        made_by = (place.data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        raise EmbeddedError(f"{place.data} is not a Postgres database: move it away, or choose another path") from None
    if made_by != str(major):
        raise EmbeddedError(
            f"{place.path} holds a database of Postgres {made_by}, and {bin_dir} is Postgres {major}: "
            f"dump it with a Postgres {made_by} and load it at another path, or choose another path"
        )


def _initialise(place: Place, bin_dir: Path, major: int, user: User, lock: int) -> None:
    """Make the database under another name, so that one by the right name is always whole."""
    new = place.home / "data.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(0o700)
    user.own(new)
    # The same encoding and the same sort order on every machine.
    options = ["--encoding=UTF8", "--locale=C", "--data-checksums", "--no-instructions"]
    if major >= 17:
        # Sorts as C does, and knows upper and lower case beyond ASCII.
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    options += ["--username=postgres", "--auth-local=peer", "--auth-host=reject"]
    try:
        # It inherits the lock: if we are killed it goes on, and who comes next waits until it has ended.
        done = user.run([bin_dir / "initdb", "-D", new, *options], keep=[lock])
        if done.returncode:
            raise EmbeddedError(
                f"cannot make a database in {place.path}: initdb {_exit(done.returncode)}\n"
                f"{_end(done.stdout)}\n{_advice(place)}"
            )
        new.rename(place.data)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    parent = os.open(place.home, os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _launch(place: Place, bin_dir: Path, user: User, lock: int) -> int:
    """Start Postgres and return where in the log its words begin."""
    directory = socket_dir(place.home, user)
    # With the lock in our hands, no process of a former server is left. Postgres itself would ask whether the
    # pids in these files live, and take a stranger who got one of them for a server.
    socket = directory / ".s.PGSQL.5432"
    for stale in (place.data / "postmaster.pid", socket, socket.with_name(f"{socket.name}.lock")):
        stale.unlink(missing_ok=True)
    write_settings(place.home, current_user())
    if place.log.exists() and place.log.stat().st_size > _LOG_BYTES:
        place.log.replace(place.log.with_suffix(".log.old"))
    log = open_log(place)
    try:
        begins = os.fstat(log).st_size
        user.spawn([bin_dir / "postgres", *arguments(place.home, directory)], output=log, keep=[lock])
    finally:
        os.close(log)
    return begins


def open_log(place: Place) -> int:
    return os.open(place.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _did_not_start(place: Place, why: str, log_begins: int) -> str:
    with place.log.open("rb") as log:
        log.seek(log_begins)
        said = log.read().decode(errors="replace")
    what = f"the Postgres in {place.path} did not start: {why}. The end of {place.log}:"
    return f"{what}\n{_end(said)}\n{_advice(place)}"


def _advice(place: Place) -> str:
    left = shutil.disk_usage(place.home).free // 1_000_000
    if left < 100:
        return f"The disk has {left} MB left: free some, then start again."
    return "Put that right, then start again."


def _exit(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with code {code}"


def _end(output: str) -> str:
    return "\n".join(f"    {line}" for line in output.strip().splitlines()[-8:])
