"""The end of a run lets the next of its schedule go, at the same cost however many wait and whatever was analysed."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from uuid import uuid4

import psycopg
import pytest

from . import calls
from .calls import Connection, Held
from .test_plans import counters, database, way

BLOCKED = 20_000


@pytest.fixture(scope="module")
def line(server_dsn: str) -> Generator[str]:
    """A database in which one run goes and a crowd waits for its end; nothing has been analysed."""
    with database(server_dsn) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("set synchronous_commit = off")
        schedule = put_schedule(conn, "queue")
        put_runs(conn, schedule, "ready", 1)
        put_runs(conn, schedule, "blocked", BLOCKED)
        yield dsn


@pytest.fixture(params=["never analysed", "analysed when empty", "analysed now"])
def conn(request: pytest.FixtureRequest, line: str) -> Generator[Connection]:
    with psycopg.connect(line, autocommit=True) as conn, conn.transaction(force_rollback=True):
        if request.param == "analysed now":
            conn.execute("analyze stepwell.job")
        else:
            empty = 0 if request.param == "analysed when empty" else -1
            conn.execute(
                "update pg_class set reltuples = %s, relpages = 0 where relnamespace = 'stepwell'::regnamespace",
                (empty,),
            )
        yield conn


def put_schedule(conn: Connection, overlap: str) -> str:
    return calls.one(
        conn.execute(
            "insert into stepwell.schedule (id, owner, name, task, args, queue, rank, every, overlap, catchup, jitter,"
            " declared, declared_at, created_at, next_tick_at) values (stepwell.uuid7(), 'shop', %s, 'work', '{}',"
            " 'default', 0, 60, %s, 1, 0, false, now(), now(), now()) returning id::text",
            (uuid4().hex, overlap),
        )
    )


def put_runs(conn: Connection, schedule: str, state: str, count: int) -> None:
    conn.execute(
        "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args, schedule_id, scheduled_for)"
        " select stepwell.uuid7(), now(), now(), %s::stepwell.state, 'work', 'default', '{}', %s::uuid,"
        " now() - n.n * interval '1 minute' from generate_series(%s, 1, -1) as n (n)",
        (state, schedule, count),
    )


def claim_one(conn: Connection) -> Held:
    [held] = calls.claim(conn, calls.register_worker(conn), 1)
    return held


def test_a_run_that_ends_reads_only_the_next_of_those_that_wait(conn: Connection) -> None:
    first = conn.execute(
        "select id::text from stepwell.job where state = 'blocked' order by scheduled_for, id limit 1"
    ).fetchone()
    worker = calls.register_worker(conn)
    for _ in range(7):  # after five calls Postgres may keep a plan for good
        [held] = calls.claim(conn, worker, 1)
        before = counters(conn)
        assert calls.finish(conn, [held]) == []
        taken = way(before, counters(conn))
        assert (taken.read < 500, taken.blocks < 200, taken.read_whole) == (True, True, set()), taken
        if first is not None:
            assert calls.state(conn, first[0]) == "ready"
            first = None


def test_upkeep_does_not_read_runs_that_rightly_wait(conn: Connection) -> None:
    for _ in range(7):
        before = counters(conn)
        assert calls.one(conn.execute("select stepwell.admit(null)")) == 0
        taken = way(before, counters(conn))
        assert (taken.read < 500, taken.read_whole) == (True, set()), taken


def test_upkeep_admits_the_first_of_each_schedule_whose_runs_are_stranded(conn: Connection) -> None:
    stranded = [put_schedule(conn, "queue") for _ in range(3)]
    for schedule in stranded:
        put_runs(conn, schedule, "blocked", 2)
    removed = str(uuid4())  # nothing is left of this schedule but its runs
    put_runs(conn, removed, "blocked", 2)
    before = counters(conn)
    assert calls.one(conn.execute("select stepwell.admit(null)")) == 4
    assert way(before, counters(conn)).read < 200
    admitted = conn.execute(
        "select schedule_id::text, count(*), min(scheduled_for) filter (where state = 'ready') = min(scheduled_for)"
        " from stepwell.job where schedule_id::text = any (%s) group by 1",
        ([*stranded, removed],),
    ).fetchall()
    assert sorted(admitted) == sorted((schedule, 2, True) for schedule in (*stranded, removed))
    assert calls.one(conn.execute("select stepwell.admit(null)")) == 0


def test_a_run_that_is_not_the_last_admits_nobody(conn: Connection) -> None:
    schedule = put_schedule(conn, "queue")
    put_runs(conn, schedule, "running", 1)
    put_runs(conn, schedule, "blocked", 3)
    assert calls.one(conn.execute("select stepwell.admit(array[%s::uuid])", (schedule,))) == 0
    conn.execute("delete from stepwell.job where schedule_id = %s::uuid and state = 'running'", (schedule,))
    assert calls.one(conn.execute("select stepwell.admit(array[%s::uuid, %s::uuid])", (schedule, schedule))) == 1


def tick(conn: Connection) -> int:
    """Fire the one schedule that there is, for the time at which it is due."""
    row = conn.execute("select id, version, next_tick_at from stepwell.schedule").fetchone()
    assert row is not None
    due: datetime = row[2]
    return calls.one(
        conn.execute(
            "select enqueued from stepwell.tick(array[%(id)s], array[%(version)s], array[%(due)s],"
            " array[now() + interval '1 minute'], array[%(id)s], array[%(due)s])",
            {"id": row[0], "version": row[1], "due": due},
        )
    )


@pytest.mark.parametrize(("overlap", "enqueued"), [("skip", 0), ("queue", 1)])
def test_a_tick_does_not_read_the_runs_that_wait(conn: Connection, overlap: str, enqueued: int) -> None:
    for _ in range(7):
        conn.execute("update stepwell.schedule set overlap = %s, next_tick_at = clock_timestamp()", (overlap,))
        before = counters(conn)
        assert tick(conn) == enqueued
        taken = way(before, counters(conn))
        assert (taken.read < 500, taken.read_whole - {"schedule"}) == (True, set()), taken


def test_a_tick_replaces_very_many_runs_that_wait_in_several_calls(conn: Connection) -> None:
    conn.execute(
        "delete from stepwell.job j where j.id in (select k.id from stepwell.job k where k.state = 'blocked' limit %s)",
        (BLOCKED - 2500,),
    )
    conn.execute("update stepwell.schedule set overlap = 'replace'")
    assert [tick(conn) for _ in range(3)] == [0, 0, 1]
    assert calls.one(conn.execute("select count(*) from stepwell.history where state = 'cancelled'")) == 2501
    assert conn.execute("select state::text from stepwell.job").fetchall() == [("ready",)]
