from __future__ import annotations

import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from stepwell.embedded import EmbeddedPostgres, keeper

from .program import USE, Program, is_free, runs, until


@pytest.fixture
def room() -> Generator[Path]:
    """A directory that every user can reach, by a short name. Nothing may be alive in it at the end."""
    room = Path(tempfile.mkdtemp(prefix="sw"))
    room.chmod(0o711)
    yield room
    places = [lock.parent for lock in room.rglob(keeper.USERS)]
    for path in places:
        until(lambda path=path: not runs(path), f"the server at {path} is gone")
        until(lambda path=path: is_free(path / keeper.KEEPER), f"the keeper at {path} is gone")
    shutil.rmtree(room)


@pytest.fixture(scope="session")
def template() -> Generator[Path]:
    """A place where a database has been made, once for all tests that do not care how."""
    with tempfile.TemporaryDirectory(prefix="sw") as name:
        Path(name).chmod(0o711)
        with EmbeddedPostgres(Path(name) / "db") as embedded:
            pass
        until(lambda: is_free(embedded.path / keeper.KEEPER), "the keeper is gone")
        yield embedded.path


@pytest.fixture
def place(room: Path, template: Path) -> Path:
    """A path that holds a database already."""
    subprocess.run(["cp", "-a", template, room / "db"], check=True)
    return room / "db"


@pytest.fixture
def program(room: Path) -> Generator[Callable[..., Program]]:
    """Start programs that use the server at a path; what is left of them is killed."""
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
