"""The directory that a user names, and the home of the server: the same directory, wherever it can be.

    PATH/.gitignore, stepwell.lock, users.lock, keeper.lock
    HOME/server.lock, data/, run/ (the socket), postgres.log, postgresql.conf, pg_hba.conf, pg_ident.conf

Run by root, the server's user may be unable to reach PATH; then HOME is in the shelter, and PATH/elsewhere
points to it. That link decides, once it is made. Removing PATH therefore means a new database, whoever runs
it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from stepwell.embedded import shelter
from stepwell.embedded.keeper import ELSEWHERE, KEEPER, MUTEX, SERVER, USERS, home_of
from stepwell.embedded.user import User
from stepwell.errors import EmbeddedError


@dataclass(frozen=True)
class Place:
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
    """Make the directory, or make sure that the one that is there is ours to use. Touches nothing else."""
    if "\n" in str(path):
        raise EmbeddedError(f"{str(path)!r} has a line break in it, which Postgres cannot store: choose another path")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise EmbeddedError(f"{path} lies below a file, {error.filename}: choose another path") from error
    try:
        # Root's is made to be passed by the server's user. All that stands in it is closed by itself.
        path.mkdir(0o711 if os.geteuid() == 0 else 0o700)
    except FileExistsError:
        _check_ours(path)
    # The first file to be made, and by that the mark that the directory is ours.
    _touch(path / MUTEX)


def settle(path: Path, user: User) -> Place:
    """Decide where the server's files go, and make the files to lock. Call it with the mutex held."""
    _touch(path / USERS)
    _touch(path / KEEPER)
    if not (path / ".gitignore").exists():
        (path / ".gitignore").write_text("*\n")
    place = Place(path, _home(path, user))
    if user.is_another and not user.reaches(place.home):
        raise EmbeddedError(
            f"{path} holds a database, but its owner, user {user.name!r}, can no longer reach {place.home}: "
            "let that user pass through the directories above it, or choose another path"
        )
    _touch(place.home / SERVER)
    return place


def _check_ours(path: Path) -> None:
    if not path.is_dir():
        raise EmbeddedError(f"{path} is a file, not a directory: choose another path")
    info = path.stat()
    if info.st_uid != os.geteuid():
        raise EmbeddedError(f"{path} belongs to another user (id {info.st_uid}): choose a path of your own")
    if info.st_mode & stat.S_IWOTH:
        raise EmbeddedError(f"anybody may write to {path}: run chmod o-w on it, or choose another path")
    names = sorted(entry.name for entry in path.iterdir())
    if names and MUTEX not in names:
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        raise EmbeddedError(
            f"{path} holds files that are not ours ({some}): choose another path, such as {path / 'jobs'}"
        )


def _home(path: Path, user: User) -> Path:
    link = path / ELSEWHERE
    if link.is_symlink() and not link.exists():
        link.unlink()  # somebody cleared the shelter
    if link.is_symlink() or (path / "data").exists():
        return home_of(path)
    if not user.is_another or user.reaches(path):
        return path
    home = shelter.new_home(path)
    link.symlink_to(home)
    return home


def _touch(file: Path) -> None:
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
