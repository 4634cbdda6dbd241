"""Rights: each role can do what it was granted, and nothing else."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import LiteralString
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from . import calls
from .calls import DAY, Connection


@contextmanager
def role(conn: Connection, dsn: str, *grants: LiteralString) -> Generator[Connection]:
    """A connection as a new role with these grants."""
    name = sql.Identifier(f"r{uuid4().hex[:12]}")
    conn.execute(sql.SQL("create role {}").format(name))
    try:
        for grant in grants:
            conn.execute(sql.SQL("grant ") + sql.SQL(grant) + sql.SQL(" to {}").format(name))
        with psycopg.connect(dsn, autocommit=True) as theirs:
            theirs.execute(sql.SQL("set session authorization {}").format(name))
            yield theirs
    finally:
        conn.execute(sql.SQL("drop owned by {}").format(name))
        conn.execute(sql.SQL("drop role {}").format(name))


@pytest.fixture
def producer(conn: Connection, dsn: str) -> Generator[Connection]:
    with role(conn, dsn, "usage on schema stepwell", "execute on function stepwell.enqueue") as theirs:
        yield theirs


def signatures(conn: Connection) -> list[tuple[str, str]]:
    """Each function with a call of it in which every argument is null."""
    rows = conn.execute(
        """
        select p.proname, format('select stepwell.%I(%s)', p.proname, (
          select string_agg('null::' || format_type(t.type, null), ', ' order by t.n)
          from unnest(p.proargtypes::oid[]) with ordinality as t (type, n)
        ))
        from pg_proc p where p.pronamespace = 'stepwell'::regnamespace
        """
    )
    return rows.fetchall()


def test_a_producer_can_enqueue(conn: Connection, producer: Connection) -> None:
    job_id = calls.one(
        producer.execute(
            "select stepwell.enqueue('ship', '{\"n\": 1}', queue => 'a', priority => 1, delay => '1 hour',"
            " metadata => '{\"by\": 7}', max_attempts => 3)::text"
        )
    )
    assert calls.state(conn, job_id) == "scheduled"


def test_a_producer_can_do_nothing_else(conn: Connection, producer: Connection) -> None:
    allowed: set[str] = set()
    for name, call in signatures(conn):
        try:
            producer.execute(call.encode())
        except psycopg.errors.InsufficientPrivilege:
            continue
        except psycopg.Error:
            pass
        allowed.add(name)
    assert allowed == {"enqueue", "accepts", "schema_version", "now", "unfold"}
    tables = producer.execute(
        """
        select c.relname from pg_class c
        where c.relnamespace = 'stepwell'::regnamespace and c.relkind in ('r', 'p', 'v', 'S')
          and has_table_privilege(c.oid, 'select, insert, update, delete, truncate, references, trigger')
        """
    )
    assert tables.fetchall() == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        producer.execute("select from stepwell.jobs")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        producer.execute("create table stepwell.mine ()")


def test_a_role_without_grants_cannot_even_look_in(conn: Connection, dsn: str) -> None:
    with role(conn, dsn) as stranger, pytest.raises(psycopg.errors.InsufficientPrivilege, match="schema stepwell"):
        stranger.execute("select stepwell.schema_version()")


def test_a_worker_role_can_do_its_work_and_upkeep_without_touching_tables(conn: Connection, dsn: str) -> None:
    with role(conn, dsn, "usage on schema stepwell") as theirs:
        name = calls.one(theirs.execute("select current_user::text"))
        conn.execute("select stepwell.grant_role(%s, '{worker, operator}')", (name,))
        worker = calls.register_worker(theirs)
        calls.renew(theirs, worker)
        ids = calls.enqueue_many(theirs, ["{}"] * 4)
        done, failed, snoozed, cancelled = calls.claim(theirs, worker)
        calls.ready_queues(theirs, "*")
        calls.report_progress(theirs, [done])
        calls.cancel(theirs, [cancelled.id])
        assert calls.still_held(theirs, done)
        for refused in (
            calls.finish(theirs, [done]),
            calls.fail(theirs, [failed], delay=None),
            calls.snooze(theirs, [snoozed], delay=60.0),
            calls.finish(theirs, [cancelled], state="cancelled"),
        ):
            assert refused == []
        assert calls.retry(theirs, [failed.id]) == [failed.id]
        calls.promote(theirs)
        calls.rescue(theirs)
        assert len(calls.make_partitions(theirs, 3000 * DAY)) == 6
        calls.prune(theirs)
        theirs.execute("select stepwell.pause('a'), stepwell.resume('a')")
        theirs.execute("select id from stepwell.results(%s::uuid[])", (ids,))
        for view in ("jobs", "failures", "queues", "workers"):
            theirs.execute(sql.SQL("select * from {}").format(sql.Identifier("stepwell", view)))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            theirs.execute("select from stepwell.job")


def test_an_onlooker_can_read_the_views_and_call_nothing(conn: Connection, dsn: str) -> None:
    views: LiteralString = "select on stepwell.jobs, stepwell.failures, stepwell.queues, stepwell.workers"
    calls.register_worker(conn)
    calls.enqueue(conn)
    with role(conn, dsn, "usage on schema stepwell", views) as theirs:
        for view in ("jobs", "failures", "queues", "workers"):
            theirs.execute(sql.SQL("select * from {}").format(sql.Identifier("stepwell", view)))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            theirs.execute("select stepwell.enqueue('ship')")


def test_only_harmless_functions_are_for_everybody(conn: Connection) -> None:
    rows = conn.execute(
        """
        select p.proname from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
        where p.pronamespace = 'stepwell'::regnamespace and a.grantee = 0
        """
    )
    assert {row[0] for row in rows} == {"accepts", "schema_version", "now", "unfold"}


def test_each_function_has_a_fixed_search_path(conn: Connection) -> None:
    rows = conn.execute(
        """
        select p.proname from pg_proc p
        where p.pronamespace = 'stepwell'::regnamespace
          and 'search_path=pg_catalog, pg_temp' <> all (coalesce(p.proconfig, '{}'))
        """
    )
    # These are inlined where they are used, which a setting would prevent, and run with their caller's rights.
    inlined = {
        "uuid7",
        "expiry",
        "json_size",
        "unfold",
        "place_text",
        "microseconds",
        "fingerprint",
        "lone_limit",
        "missing_tokens",
        "rules_of",
    }
    assert {row[0] for row in rows} == inlined
    rows = conn.execute(
        "select p.proname from pg_proc p where p.pronamespace = 'stepwell'::regnamespace and p.prosecdef"
    )
    assert {row[0] for row in rows}.isdisjoint(inlined)


def test_a_function_or_table_of_the_callers_own_does_not_shadow_ours(conn: Connection, dsn: str) -> None:
    calls.set_clock(conn, 1_800_000_000.0)
    with role(conn, dsn, "usage on schema stepwell", "execute on function stepwell.enqueue") as theirs:
        theirs.execute("create temporary table clock (at timestamptz)")
        theirs.execute("create function pg_temp.pg_notify(text, text) returns void language sql as 'select 1/0'")
        theirs.execute("set search_path = pg_temp, pg_catalog")
        theirs.execute("select stepwell.enqueue('ship')")
    assert calls.one(conn.execute("select extract(epoch from run_at)::double precision from stepwell.job")) == 1.8e9
