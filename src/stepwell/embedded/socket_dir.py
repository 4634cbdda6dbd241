"""The directory of the server's socket: in its home, or in a short path if the name would be too long."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from stepwell.embedded.user import User
from stepwell.errors import EmbeddedError

_LONGEST = 103 if sys.platform == "darwin" else 107


def socket_dir(home: Path, user: User) -> Path:
    """Create the directory, accessible only to the user, for a process that starts a server. Processes that join read
    the path in `postmaster.pid`, and a later start finds the previous directory by the link in the home. So all agree,
    although XDG_RUNTIME_DIR and TMPDIR may differ between processes."""
    run = home / "run"
    if _fits(run):
        if run.is_symlink():
            run.unlink()  # the home used to have a longer path
        return _private(run, user)
    name = "stepwell-" + hashlib.sha256(os.fsencode(f"{os.geteuid()}:{home}")).hexdigest()[:16]
    bases = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"]  # noqa: S108 - see _private
    if run.is_symlink():
        bases.insert(0, str(run.readlink().parent))
    for base in map(Path, bases):
        usable = base.is_absolute() and base.is_dir() and os.access(base, os.W_OK | os.X_OK)
        if usable and _fits(base / name) and user.reaches(base):
            directory = _private(base / name, user)
            if run.is_symlink():
                run.unlink()
            elif run.exists():
                shutil.rmtree(run)  # the home used to have a shorter path
            run.symlink_to(directory)
            return directory
    raise EmbeddedError(
        f"{home} is too long a path for a socket (over {_LONGEST - len('/run/.s.PGSQL.5432')} bytes), and neither "
        "XDG_RUNTIME_DIR nor TMPDIR names a short directory to use instead: set one of them, or choose a shorter path"
    )


def _fits(directory: Path) -> bool:
    # libpq reads a host with a comma as two hosts.
    return len(os.fsencode(directory / ".s.PGSQL.5432")) <= _LONGEST and "," not in str(directory)


def _private(directory: Path, user: User) -> Path:
    """Create the directory, or check it: in a place like /tmp somebody else may have created it."""
    with suppress(FileExistsError):
        directory.mkdir(0o700)
    info = directory.lstat()
    if stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid():
        user.own(directory)
        info = directory.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != user.uid or stat.S_IMODE(info.st_mode) != 0o700:
        raise EmbeddedError(
            f"{directory} is needed for the server's socket, but is not a directory that only user {user.name!r} "
            "can access (0700): remove it and start again"
        )
    return directory
