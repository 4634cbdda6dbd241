"""One database for all tests of this room, emptied before each: quicker than a new one, and as good here."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.databases import create_database, drop_database

# A function, so that the session plans its statements once.
_EMPTY = r"""
create function pg_temp.empty() returns void language plpgsql as $$
declare
  _partition regclass;
begin
  for _partition in
    select c.oid from pg_class c
    where c.relnamespace = 'stepwell'::regnamespace and c.relispartition and c.relkind = 'r' and c.relname ~ '_\d{8}$'
  loop
    execute format('drop table %s', _partition);
  end loop;
  delete from stepwell.step;
  delete from stepwell.run_log;
  delete from stepwell.run_log_head;
  delete from stepwell.stack_request;
  delete from stepwell.event;
  delete from stepwell.large_value;
  delete from stepwell.job;
  delete from stepwell.history;
  delete from stepwell.failure;
  delete from stepwell.failure_group;
  delete from stepwell.failure_tally;
  delete from stepwell.failure_hour;
  delete from stepwell.audit;
  delete from stepwell.worker;
  delete from stepwell.schedule;
  delete from stepwell.tick;
  delete from stepwell.control;
  delete from stepwell.queue_setting;
  delete from stepwell.leader;
  delete from stepwell.stat;
  delete from stepwell.stat_sum;
  update stepwell.stat_progress
  set counted_to = null, minutes_to = null, fives_to = null, hours_to = null, quarters_to = null;
  delete from stepwell.bulk;
  delete from stepwell.saved_view;
  delete from stepwell.clock;
end
$$
"""


@pytest.fixture(scope="session")
def cleaner(server: psycopg.Connection[Any], server_dsn: str) -> Generator[psycopg.Connection[Any]]:
    """A session on the shared database, which empties it. It stays: a new one would have to read the catalogs anew."""
    name = f"sql{uuid4().hex[:12]}"
    create_database(server, name)
    with psycopg.connect(make_conninfo(server_dsn, dbname=name), autocommit=True) as conn:
        conn.execute(_EMPTY)
        yield conn
    drop_database(server, name)


@pytest.fixture
def dsn(cleaner: psycopg.Connection[Any], server_dsn: str) -> str:
    """A migrated database without jobs, workers, queues, a set clock, or partitions for days to come."""
    cleaner.execute("select pg_temp.empty()")
    return make_conninfo(server_dsn, dbname=cleaner.info.dbname)
