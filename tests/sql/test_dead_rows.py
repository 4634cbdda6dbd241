"""While somebody holds an old snapshot, dead rows stay. What workers call often must not walk over them."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.claims import EntriesRead

from . import calls
from .calls import Connection

DEAD = 400


@pytest.fixture
def snapshot(dsn: str) -> Iterator[None]:
    with psycopg.connect(dsn, autocommit=True) as cleaner:
        # The tests of this room share a database: here are the dead rows of others.
        cleaner.execute("vacuum stepwell.job")
    with psycopg.connect(dsn) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select")
        yield


def entries_read(conn: Connection, index: str, call: str) -> int:
    """How many entries of an index a call walks over, dead ones included."""
    with conn.transaction():
        before = calls.one(conn.execute("select pg_stat_get_xact_tuples_returned(%s::regclass)", (index,)))
        conn.execute(call.encode())
        after = calls.one(conn.execute("select pg_stat_get_xact_tuples_returned(%s::regclass)", (index,)))
    return after - before


def run_many(conn: Connection, worker: str) -> None:
    calls.enqueue_many(conn, ["{}"] * DEAD)
    held = calls.claim(conn, worker, limit=DEAD)
    assert len(held) == DEAD
    calls.finish(conn, held)


@pytest.mark.usefixtures("snapshot")
def test_the_leaders_call_each_second_passes_over_no_job_that_ran(conn: Connection) -> None:
    worker = calls.register_worker(conn)
    run_many(conn, worker)
    lead = f"select stepwell.lead_and_rescue('{worker}')"
    assert entries_read(conn, "stepwell.job_running", lead) == 0
    # The rare look does: this shows that they are still there.
    assert entries_read(conn, "stepwell.job_running", "select stepwell.rescue_unregistered()") >= DEAD


@pytest.mark.usefixtures("snapshot")
def test_promoting_passes_over_no_job_that_was_due_long_ago(conn: Connection) -> None:
    calls.set_clock(conn, 1_800_000_000.0)
    calls.enqueue_many(conn, ["{}"] * DEAD, delays=[1.0] * DEAD)
    calls.set_clock(conn, 1_800_000_010.0)
    assert calls.promote(conn)[0] == DEAD
    calls.set_clock(conn, 1_800_000_100.0)
    assert entries_read(conn, "stepwell.job_due", "select stepwell.promote(_since => 60)") == 0
    assert entries_read(conn, "stepwell.job_due", "select stepwell.promote()") >= DEAD


@pytest.mark.usefixtures("snapshot")
def test_looking_for_ready_jobs_counts_the_dead_rows(conn: Connection) -> None:
    worker = calls.register_worker(conn)
    look = queries.claims.first_ready(worker, ["default"], ["work"])
    before, after = fetch(conn, look)
    assert before == after
    run_many(conn, worker)
    calls.enqueue(conn)
    before, first, after = fetch(conn, look)
    assert not isinstance(first, EntriesRead)
    assert first.queue == "default"
    assert isinstance(before, EntriesRead)
    assert isinstance(after, EntriesRead)
    assert DEAD <= after.entries - before.entries <= DEAD + 20


@pytest.mark.usefixtures("snapshot")
def test_promoting_counts_the_dead_rows_but_not_the_jobs_that_it_promotes(conn: Connection) -> None:
    calls.set_clock(conn, 1_800_000_000.0)
    calls.enqueue_many(conn, ["{}"] * DEAD, delays=[1.0] * DEAD)
    calls.set_clock(conn, 1_800_000_010.0)
    [promoted] = fetch(conn, queries.upkeep.promote())
    assert (promoted.count, promoted.walked) == (DEAD, 0)
    [promoted] = fetch(conn, queries.upkeep.promote())
    assert promoted.count == 0
    assert promoted.walked >= DEAD


@pytest.mark.usefixtures("snapshot")
def test_admitting_passes_over_the_dead_rows_of_a_line_once(conn: Connection) -> None:
    worker = calls.register_worker(conn)
    policy = '{"admission":{"limits":[{"key":"dead","most":200}]}}'
    calls.enqueue_many(conn, ["{}"] * (DEAD + 50), policies=[policy] * (DEAD + 50))
    for _ in range(DEAD // 200):
        conn.execute("select stepwell.admit_keys('{dead}')")
        calls.finish(conn, calls.claim(conn, worker, limit=200))
    admit = "select stepwell.admit_keys('{dead}')"
    # The end of the last jobs has admitted those in line: one of them lines up again.
    last = calls.one(conn.execute("select id from stepwell.job where state = 'ready' order by id desc limit 1"))
    conn.execute("update stepwell.job set state = 'blocked', blocked_by = 'dead' where id = %s", [last])
    conn.execute("delete from stepwell.permit where job_id = %s", [last])
    assert DEAD <= entries_read(conn, "stepwell.job_blocked", admit) < 1.5 * DEAD
    assert calls.one(conn.execute("select state::text from stepwell.job where id = %s", [last])) == "ready"
