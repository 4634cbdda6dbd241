"""A real Postgres for every test: one embedded server per run, a database of its own per test.

STEPWELL_TEST_POSTGRES chooses another version: 16 for the one in the wheel, or a directory with Postgres' programs.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import hypothesis
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from stepwell import App
from stepwell.embedded import EmbeddedPostgres, wheel_bin_dir
from tests.databases import MIGRATED, create_database, drop_database, make_template

# A shell that starts this in the background has it ignored, and all that it starts would do the same.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples are about values, not about time: on a busy machine any one may take a second.
hypothesis.settings.register_profile("stepwell", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("stepwell")

_SERVER = "STEPWELL_TEST_SERVER"
_PLACE = "STEPWELL_TEST_PLACE"
_MEMORY = Path("/dev/shm")
_ENOUGH_MEMORY = 4 * 1024**3
_running: list[EmbeddedPostgres] = []
_places: list[Path] = []


def postgres_bin_dir() -> Path:
    """The Postgres programs that this run tests against."""
    chosen = os.environ.get("STEPWELL_TEST_POSTGRES", "18")
    return wheel_bin_dir(int(chosen)) if chosen.isdecimal() else Path(chosen)


def make_open_dir() -> Path:
    """A short directory that every user may enter: root's Postgres runs as another user."""
    place = Path(tempfile.mkdtemp(prefix="sw"))
    place.chmod(0o755)
    return place


def _move_to_memory() -> None:
    """Have all temporary files of this run, and of the processes that it starts, in memory, if there is enough of it.

    A database is some three hundred files, and each test makes and drops one. On ext4, which passes over every inode
    that was freed a moment ago, to find theirs took half of the processors' time.
    """
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ENOUGH_MEMORY:
        tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="sw", dir=_MEMORY)
        Path(tempfile.tempdir).chmod(0o1777)
        _places.append(Path(tempfile.tempdir))


def pytest_configure(config: pytest.Config) -> None:
    # Only the process that starts the run; the others of xdist inherit the variable.
    if hasattr(config, "workerinput"):
        return
    # Each of the many processes that tests start would compile all of stepwell anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    _move_to_memory()
    place = make_open_dir()
    _places.append(place)
    server = EmbeddedPostgres(place / "pg", bin_dir=postgres_bin_dir())
    dsn = server.start()
    _running.append(server)
    with psycopg.connect(dsn, autocommit=True) as connection:
        # These databases need not survive a power cut, and many are made and dropped. What a killed process or a killed
        # Postgres leaves behind is the same either way.
        connection.execute("alter system set fsync = off")
        connection.execute("select pg_reload_conf()")
    make_template(dsn)
    os.environ[_SERVER] = dsn
    os.environ[_PLACE] = str(place)


@pytest.hookimpl(trylast=True)  # after the shuffle
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The longest tests go first. Begun as the last ones, they would run alone.
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    if os.environ.get("STEPWELL_ALWAYS_REPLAY") == "1":
        for item in items:
            if item.get_closest_marker("counts_runs"):
                item.add_marker(pytest.mark.skip(reason="counts runs, of which there are more when all is replayed"))


def pytest_unconfigure() -> None:
    while _running:
        _running.pop().stop()
    while _places:
        shutil.rmtree(_places.pop(), ignore_errors=True)


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """Like tmp_path, but short, and every user may enter it."""
    place = make_open_dir()
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def project_dir(open_dir: Path) -> Path:
    """A directory in which App("embedded") was used before: to make its database takes longer than most programs."""
    # As root, Postgres runs as another user, who stays the owner of its files.
    subprocess.run(["cp", "-a", _embedded(), open_dir / ".stepwell"], check=True)
    return open_dir


@cache
def _embedded() -> Path:
    """The files of an embedded Postgres, migrated and stopped, which all processes of this run share."""
    path = Path(os.environ[_PLACE]) / "embedded"
    with path.with_name("embedded.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with App(f"embedded:{path}.new"):
                pass
            Path(f"{path}.new").rename(path)
    return path


@pytest.fixture(scope="session")
def server_dsn() -> str:
    """The server of this run, database postgres."""
    return os.environ[_SERVER]


@pytest.fixture(scope="session")
def server(server_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to database postgres, which makes and drops the databases of tests. To open one takes as long."""
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def empty_dsn(server: psycopg.Connection[Any]) -> Iterator[str]:
    """A database with nothing in it."""
    yield from _database(server, "template1")


@pytest.fixture
def dsn(server: psycopg.Connection[Any]) -> Iterator[str]:
    """A migrated database of this test's own."""
    yield from _database(server, MIGRATED)


@pytest.fixture(scope="module")
def module_dsn(server: psycopg.Connection[Any]) -> Iterator[str]:
    """A migrated database that the tests of a module share."""
    yield from _database(server, MIGRATED)


def _database(server: psycopg.Connection[Any], template: str) -> Iterator[str]:
    name = f"t{uuid4().hex[:12]}"
    create_database(server, name, template)
    yield make_conninfo(os.environ[_SERVER], dbname=name)
    drop_database(server, name)


@pytest.fixture
def conn(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to this test's database, in autocommit."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def app(dsn: str) -> AsyncIterator[App]:
    """An app on this test's database."""
    async with App(dsn) as app:
        yield app
