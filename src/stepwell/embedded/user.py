"""Users of this machine: the current one, and programs that run as another."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        """Run a program to its end; `stdout` has the output of both streams."""
        return subprocess.run(  # noqa: S603
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            pass_fds=keep,
            **self._surroundings(),
        )

    def spawn(self, argv: Sequence[str | Path], *, output: int, keep: Sequence[int] = (), deaf: bool = False) -> None:
        """Start a program that outlives us, in a session of its own, so that Ctrl-C does not reach it, and not as our
        child, so that it never appears in `wait()` or as a zombie. If `deaf`, it ignores SIGHUP, SIGINT and SIGTERM
        from its start."""
        script = """trap '' HUP INT TERM; "$@" &""" if deaf else '"$@" &'
        subprocess.run(  # noqa: S603
            ["/bin/sh", "-c", script, "sh", *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,  # whether the program runs shows in the lock that it inherits
            pass_fds=keep,
            start_new_session=True,
            **self._surroundings(),
        )

    def _surroundings(self) -> dict[str, Any]:
        """The user, directory and environment of our programs. The environment has no PG* variables, which would
        configure them, and no secrets."""
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        place = {"cwd": "/", "env": {**kept, "LC_ALL": "C"}}
        return {**place, "user": self.uid, "group": self.gid, "extra_groups": []} if self.is_another else place

    def reaches(self, directory: Path) -> bool:
        """Whether this user can enter the directory. Tries it, because mode bits do not tell everything."""
        return self.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", directory]).returncode == 0

    def own(self, directory: Path) -> None:
        """Give the user a directory that we have just created."""
        if self.is_another:
            os.chown(directory, self.uid, self.gid, follow_symlinks=False)


def current_user() -> User:
    uid = os.geteuid()
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise EmbeddedError(
            f"user id {uid} has no name on this machine, and Postgres identifies users by name: "
            "add it to /etc/passwd, or run as a user that has one"
        ) from None
    return User(entry.pw_name, uid, entry.pw_gid)
