"""For tests that kill: a database with a ledger, a fleet of workers, and dice whose seed is printed."""

from __future__ import annotations

import os
import random
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from .audit import open_ledger
from .fleet import Fleet
from .proxy import Proxy


@pytest.fixture
def witness(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """A connection to the test's database, which has a ledger."""
    open_ledger(conn)
    return conn


@pytest.fixture
def fleet(dsn: str, witness: psycopg.Connection[Any]) -> Iterator[Fleet]:
    """Workers for the test's database; what is left of them is killed."""
    fleet = Fleet(dsn, make_conninfo(dsn, application_name="ledger"))
    yield fleet
    fleet.close()


@pytest.fixture
def dice() -> random.Random:
    """Random moments. To have the same again, set STEPWELL_CRASH_SEED to what is printed."""
    seed = int(os.environ.get("STEPWELL_CRASH_SEED") or secrets.randbelow(2**32))
    print(f"STEPWELL_CRASH_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    """Between a worker and the test's database."""
    with tempfile.TemporaryDirectory(prefix="sw") as directory:
        proxy = Proxy(dsn, Path(directory))
        yield proxy
        proxy.close()
