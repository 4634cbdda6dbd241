"""One database for all tests of this room, emptied before each: quicker than a new one, and as good here."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.databases import create_database, drop_database

# What is in a database without jobs: the migrations put it there, or a grant of rights does.
_KEPT = ["migration", "privilege", "grantee", "size_limit", "key_lock", "stat_progress"]
_TABLES = """
    select c.relname from pg_class c
    where c.relnamespace = 'stepwell'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
      and c.relname <> all (%s)
"""
# A function, so that the session plans its statements once.
_EMPTY = sql.SQL(r"""
create function pg_temp.empty() returns void language plpgsql as $$
declare
  _partition regclass;
begin
  for _partition in
    select c.oid from pg_class c
    where c.relnamespace = 'stepwell'::regnamespace and c.relispartition and c.relkind = 'r' and c.relname ~ '_\d{{8}}$'
  loop
    execute format('drop table %s', _partition);
  end loop;
  {};
  update stepwell.stat_progress
  set counted_to = null, minutes_to = null, fives_to = null, hours_to = null, quarters_to = null;
end
$$
""")


@pytest.fixture(scope="session")
def cleaner(server: psycopg.Connection[Any], server_dsn: str) -> Generator[psycopg.Connection[Any]]:
    """A session on the shared database, which empties it. It stays: a new one would have to read the catalogs anew."""
    name = f"sql{uuid4().hex[:12]}"
    create_database(server, name)
    with psycopg.connect(make_conninfo(server_dsn, dbname=name), autocommit=True) as conn:
        tables = conn.execute(_TABLES, (_KEPT,)).fetchall()
        deletes = (sql.SQL("delete from {}").format(sql.Identifier("stepwell", name)) for (name,) in tables)
        conn.execute(_EMPTY.format(sql.SQL("; ").join(deletes)))
        yield conn
    drop_database(server, name)


@pytest.fixture
def dsn(cleaner: psycopg.Connection[Any], server_dsn: str) -> str:
    """A migrated database without jobs, workers, queues, a set clock, or partitions for days to come."""
    cleaner.execute("select pg_temp.empty()")
    return make_conninfo(server_dsn, dbname=cleaner.info.dbname)
