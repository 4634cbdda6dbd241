"""A server of the test's own, and one with a standby that has all that it has committed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from stepwell.embedded.server_account import server_user
from tests.conftest import make_open_dir

from .server import Server


@pytest.fixture(scope="session")
def template() -> Iterator[Server]:
    """A stopped server with the schema, to be copied."""
    place = make_open_dir()
    server = Server(place / "t", server_user(place))
    server.make()
    yield server
    shutil.rmtree(place)


@pytest.fixture
def primary(template: Server, open_dir: Path) -> Iterator[Server]:
    server = Server(open_dir / "a", template.user)
    server.make_from(template)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def standby(primary: Server, open_dir: Path) -> Iterator[Server]:
    server = Server(open_dir / "b", primary.user)
    server.make_standby_of(primary)
    yield server
    server.stop()


@pytest.fixture
def both(primary: Server, standby: Server) -> str:
    """A URL that names both servers."""
    return make_conninfo(primary.dsn, host=f"{primary.place},{standby.place}", connect_timeout=None)
