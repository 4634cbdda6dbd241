"""A schema as text, to compare one with another."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from tests.conftest import postgres_bin_dir

Connection = psycopg.Connection[Any]

# The partitions of a day differ from day to day.
_DAY = "stepwell.*_" + "[0-9]" * 8
_NOISE = re.compile(r"\s*$|--|SET |SELECT pg_catalog.set_config|\\(un)?restrict ")


def dump(conn: Connection) -> list[str]:
    """All that pg_dump says of the schema stepwell."""
    dumped = subprocess.run(
        [postgres_bin_dir() / "pg_dump", "--schema-only", "--schema=stepwell", f"--exclude-table={_DAY}", place(conn)],
        check=True,
        capture_output=True,
        text=True,
    )
    return [line for line in dumped.stdout.splitlines() if not _NOISE.match(line)]


def place(conn: Connection) -> str:
    """Where a connection leads, said so that a program of any version understands it."""
    info = conn.info
    return make_conninfo(host=info.host, port=info.port, user=info.user, dbname=info.dbname)
