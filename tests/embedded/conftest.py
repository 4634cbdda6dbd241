from __future__ import annotations

import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepwell.embedded import EmbeddedPostgres, lifetime

from .program import USE, Program, is_free, runs, until


@pytest.fixture
def room() -> Generator[Path]:
    """A directory that every user can reach, by a short name. Nothing may be alive in it at the end."""
    with _room() as room:
        yield room
        for lock in room.rglob(lifetime.USERS):
            wait_until_left(lock.parent)


@pytest.fixture(scope="session")
def made() -> Generator[Path]:
    """A path that holds a database already, made once: to make one takes longer than most tests."""
    with _room() as room:
        with EmbeddedPostgres(room / "db"):
            pass
        yield room / "db"


@pytest.fixture
def place(made: Path) -> Generator[Path]:
    """A path that holds a database, as the last test left it."""
    yield made
    wait_until_left(made)


@pytest.fixture
def spare(place: Path, room: Path) -> Path:
    """A path that holds a database which a test may ruin."""
    subprocess.run(["cp", "-a", place, room / "db"], check=True)
    return room / "db"


@pytest.fixture
def move(place: Path, room: Path) -> Generator[Callable[[Path], Path]]:
    """Move the database to another path, until the test ends."""
    paths: list[Path] = []

    def to(path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        paths.append(place.rename(path))
        return path

    yield to
    for path in paths:
        wait_until_left(path)
        if (path / "run").is_symlink():
            (path / "run").unlink()
        path.rename(place)


@pytest.fixture
def program(room: Path, place: Path) -> Generator[Callable[..., Program]]:
    """Start programs that use the server at a path; what is left of them at the end is killed."""
    programs: list[Program] = []

    def start(path: Path, body: str = USE) -> Program:
        programs.append(Program(path, body))
        return programs[-1]

    yield start
    for each in programs:
        each.close()


@pytest.fixture
def modes(room: Path) -> Callable[[], dict[str, tuple[int, int]]]:
    """The permissions and owners of the directories above those that a test makes."""

    def look() -> dict[str, tuple[int, int]]:
        above = [room, *room.parents, Path("/var"), Path("/var/lib"), Path.cwd()]
        return {str(each): (stat.S_IMODE(each.stat().st_mode), each.stat().st_uid) for each in above}

    return look


@contextmanager
def _room() -> Generator[Path]:
    room = Path(tempfile.mkdtemp(prefix="sw"))
    room.chmod(0o711)
    try:
        yield room
    finally:
        shutil.rmtree(room)


def wait_until_left(path: Path) -> None:
    until(lambda: not runs(path), f"the server at {path} is gone")
    until(lambda: is_free(path / lifetime.KEEPER), f"the keeper at {path} is gone")
