"""One database for all tests of this room, emptied before each: quicker than a new one, and as good here."""

from __future__ import annotations

from collections.abc import Generator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from stepwell.postgres.migrate import migrate

_PARTITIONS = r"""
select c.relname from pg_class c
where c.relnamespace = 'stepwell'::regnamespace and c.relispartition and c.relkind = 'r' and c.relname ~ '_\d{8}$'
"""


@pytest.fixture(scope="session")
def shared_dsn(server_dsn: str) -> Generator[str]:
    name = f"sql{uuid4().hex[:12]}"
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        dsn = make_conninfo(server_dsn, dbname=name)
        with psycopg.connect(dsn, autocommit=True) as conn:
            migrate(conn)
        yield dsn
        server.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def dsn(shared_dsn: str) -> str:
    """A migrated database without jobs, workers, queues, a set clock, or partitions for days to come."""
    with psycopg.connect(shared_dsn) as conn:
        for (partition,) in conn.execute(_PARTITIONS).fetchall():
            conn.execute(sql.SQL("drop table {}").format(sql.Identifier("stepwell", partition)))
        for table in (
            "step",
            "event",
            "large_value",
            "job",
            "history",
            "failure",
            "worker",
            "schedule",
            "tick",
            "control",
            "leader",
            "stat",
            "clock",
        ):
            conn.execute(sql.SQL("delete from {}").format(sql.Identifier("stepwell", table)))
    return shared_dsn
