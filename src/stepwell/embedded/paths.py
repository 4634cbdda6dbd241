"""Where the files of an embedded Postgres are: at the path in its URL, and in the home of the server.

    PATH/.gitignore, stepwell.lock, users.lock, keeper.lock
    HOME/server.lock, data/, run/ (the socket), postgres.log, postgresql.conf, pg_hba.conf, pg_ident.conf

HOME is PATH, wherever possible. Under root, the server's user may be unable to reach PATH; then HOME is in `system_dir`
and the link PATH/elsewhere points to it. Once made, the link decides. So removing PATH always means a new database.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from stepwell.embedded import system_dir
from stepwell.embedded.lifetime import ELSEWHERE, KEEPER, MUTEX, SERVER, USERS, home_of
from stepwell.embedded.user import User
from stepwell.errors import EmbeddedError


@dataclass(frozen=True)
class ServerPaths:
    """Where one embedded Postgres has its files."""

    path: Path
    home: Path

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / "postgres.log"


def claim(path: Path) -> None:
    """Create the directory, or check that the existing one is ours to use. Touches nothing else."""
    if "\n" in str(path):
        raise EmbeddedError(f"{str(path)!r} contains a line break, which Postgres cannot store: choose another path")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise EmbeddedError(f"{path} is below a file, {error.filename}: choose another path") from error
    try:
        # Under root, the server's user must be able to pass through. Everything in the directory has its own mode.
        path.mkdir(0o711 if os.geteuid() == 0 else 0o700)
    except FileExistsError:
        _check_ours(path)
    # This is the first file created, and marks the directory as ours.
    _touch(path / MUTEX)


def prepare(path: Path, user: User) -> ServerPaths:
    """Decide where the server's files go, and create the lock files. Call this with the mutex held."""
    _touch(path / USERS)
    _touch(path / KEEPER)
    if not (path / ".gitignore").exists():
        (path / ".gitignore").write_text("*\n")
    paths = ServerPaths(path, _home(path, user))
    if user.is_another and not user.reaches(paths.home):
        raise EmbeddedError(
            f"{path} holds a database, but its owner, user {user.name!r}, can no longer reach {paths.home}: "
            "let that user pass through the directories above it, or choose another path"
        )
    _touch(paths.home / SERVER)
    return paths


def _check_ours(path: Path) -> None:
    if not path.is_dir():
        raise EmbeddedError(f"{path} is a file, not a directory: choose another path")
    info = path.stat()
    if info.st_uid != os.geteuid():
        raise EmbeddedError(f"{path} belongs to another user (id {info.st_uid}): choose another path")
    if info.st_mode & stat.S_IWOTH:
        raise EmbeddedError(f"{path} is writable by everybody: run chmod o-w on it, or choose another path")
    names = sorted(entry.name for entry in path.iterdir())
    if names and MUTEX not in names:
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        raise EmbeddedError(f"{path} holds other files ({some}): choose another path, such as {path / 'jobs'}")


def _home(path: Path, user: User) -> Path:
    link = path / ELSEWHERE
    if link.is_symlink() and not link.exists():
        link.unlink()  # somebody removed its target
    if link.is_symlink() or (path / "data").exists():
        return home_of(path)
    if not user.is_another or user.reaches(path):
        return path
    home = system_dir.new_home(path)
    link.symlink_to(home)
    return home


def _touch(file: Path) -> None:
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
