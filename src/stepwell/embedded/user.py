"""Users of this machine: who we are, and how to run a program as one of them."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stepwell.errors import EmbeddedError


@dataclass(frozen=True)
class User:
    """A user of this machine, by name and number."""

    name: str
    uid: int
    gid: int

    @property
    def is_another(self) -> bool:
        return self.uid != os.geteuid()

    def run(self, argv: Sequence[str | Path], *, keep: Sequence[int] = ()) -> subprocess.CompletedProcess[str]:
        """Run a program to its end; what it prints, on either stream, is in `stdout`."""
        return subprocess.run(  # noqa: S603
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            cwd="/",
            env=_environment(),
            pass_fds=keep,
            user=self.uid if self.is_another else None,
            group=self.gid if self.is_another else None,
            extra_groups=[] if self.is_another else None,
        )

    def spawn(self, argv: Sequence[str | Path], *, output: int, keep: Sequence[int] = (), deaf: bool = False) -> None:
        """Start a program that lives on by itself: in a session of its own, so that Ctrl-C does not reach it,
        and as nobody's child here, so that the caller never meets it in `wait()` or as a zombie. A deaf one
        cannot be asked to end, from its first moment on."""
        script = """trap '' HUP INT TERM; "$@" &""" if deaf else '"$@" &'
        subprocess.run(  # noqa: S603
            ["/bin/sh", "-c", script, "sh", *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,  # what it started shows in the lock that it was given
            cwd="/",
            env=_environment(),
            pass_fds=keep,
            start_new_session=True,
            user=self.uid if self.is_another else None,
            group=self.gid if self.is_another else None,
            extra_groups=[] if self.is_another else None,
        )

    def reaches(self, directory: Path) -> bool:
        """Whether this user can enter the directory. Tried, as mode bits are not the whole story."""
        return self.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", directory]).returncode == 0

    def own(self, directory: Path) -> None:
        """Give the user a directory that we have just made."""
        if self.is_another:
            os.chown(directory, self.uid, self.gid, follow_symlinks=False)


def current_user() -> User:
    """Who we are."""
    uid = os.geteuid()
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise EmbeddedError(
            f"user id {uid} has no name on this machine, and Postgres lets in users by name: "
            "add it to /etc/passwd, or run as a user that is there"
        ) from None
    return User(entry.pw_name, uid, entry.pw_gid)


def _environment() -> dict[str, str]:
    """What our programs get to see: no PG* variable that changes their mind, no secret of the application."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LC_ALL": "C"}
