"""Delete jobs that have ended, and move jobs that do not run to another queue, priority or time."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.values.log_line import LogLine

from . import calls
from .calls import Connection


def delete(conn: Connection, *ids: str) -> list[str]:
    row = conn.execute("select stepwell.delete_jobs(%s::uuid[])::text[]", (list(ids),)).fetchone()
    assert row is not None
    return row[0]


def move(conn: Connection, *ids: str, **given: Any) -> list[str]:
    row = conn.execute(
        "select stepwell.move_jobs(%s::uuid[], %s, %s, %s::timestamptz)::text[]",
        (list(ids), given.get("queue"), given.get("priority"), given.get("run_at")),
    ).fetchone()
    assert row is not None
    return row[0]


def count(conn: Connection, table: str) -> int:
    row = conn.execute(f"select count(*) from stepwell.{table}".encode()).fetchone()
    assert row is not None
    return row[0]


def place(conn: Connection, job: str) -> tuple[Any, ...]:
    row = conn.execute(
        "select state::text, queue, -rank, run_at <= now() from stepwell.job where id = %s", (job,)
    ).fetchone()
    assert row is not None
    return row


def test_a_job_that_ended_is_deleted_with_all_that_belongs_to_it(conn: Connection) -> None:
    job, other = calls.enqueue(conn), calls.enqueue(conn)
    worker = calls.register_worker(conn)
    calls.fail(conn, calls.claim(conn, worker), delay=None)
    conn.execute(
        "insert into stepwell.large_value (job_id, key, value, expires_at) values (%s, 'k', '1', now())", (job,)
    )
    conn.execute(
        "insert into stepwell.event (emitted_at, expires_at, job_id, name, key, value)"
        " values (now(), 'infinity', %s, 'n', '', '1')",
        (job,),
    )
    lines = [LogLine(one, 1, 0.0, 20, "shop", "a line") for one in (job, job, other)]
    assert fetch(conn, queries.logs.write_logs(lines, {})) == [3]
    assert (count(conn, "history"), count(conn, "failure")) == (2, 2)
    assert delete(conn, job, job) == [job]
    tables = ("history", "failure", "large_value", "event", "run_log", "run_log_head")
    assert [count(conn, table) for table in tables] == [1, 1, 0, 0, 1, 1]
    assert fetch(conn, queries.logs.write_logs(lines[:1], {})) == [0]
    assert delete(conn, job) == []
    assert delete(conn, other) == [other]


def test_a_live_job_is_not_deleted(conn: Connection) -> None:
    ready = calls.enqueue(conn)
    worker = calls.register_worker(conn)
    [running] = calls.claim(conn, worker)
    assert delete(conn, ready, running.id) == []
    assert count(conn, "job") == 1


def test_a_delete_and_a_retry_at_once_leave_the_job_in_one_place_or_none(conn: Connection, dsn: str) -> None:
    job = calls.enqueue(conn)
    calls.fail(conn, calls.claim(conn, calls.register_worker(conn)), delay=None)
    with psycopg.connect(dsn) as other:
        other.execute("select stepwell.retry(array[%s::uuid])", (job,))
        conn.execute("set lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            delete(conn, job)
        other.commit()
    assert delete(conn, job) == []
    assert place(conn, job)[0] == "ready"
    assert count(conn, "failure") == 1


def test_a_ready_job_is_moved_and_claimed_from_its_new_queue(conn: Connection) -> None:
    job = calls.enqueue(conn)
    with conn.transaction():
        conn.execute("listen stepwell_ready_at")
        assert move(conn, job, queue="a/b", priority=7) == [job]
    assert place(conn, job) == ("ready", "a/b", 7, True)
    notes = list(conn.notifies(timeout=0.2, stop_after=1))
    assert notes[0].payload.endswith(" a/b")
    worker = calls.register_worker(conn)
    assert calls.claim(conn, worker) == []
    assert [held.id for held in calls.claim(conn, worker, queues=["a/b"])] == [job]


def test_a_job_that_runs_or_is_suspended_or_has_ended_is_not_moved(conn: Connection) -> None:
    worker = calls.register_worker(conn)
    calls.enqueue(conn)
    [running] = calls.claim(conn, worker)
    assert move(conn, running.id, queue="x") == []
    conn.execute("update stepwell.job set state = 'waiting', worker_id = null, run_at = 'infinity'")
    assert move(conn, running.id, queue="x") == []
    assert place(conn, running.id)[1] == "default"


def test_a_job_is_moved_to_another_time(conn: Connection) -> None:
    job = calls.enqueue(conn)
    assert move(conn, job, run_at="2100-01-01") == [job]
    assert place(conn, job)[0] == "scheduled"
    assert move(conn, job, run_at="2000-01-01") == [job]
    assert place(conn, job) == ("ready", "default", 0, True)


def test_a_blocked_job_keeps_its_place_in_line(conn: Connection) -> None:
    job = calls.enqueue(conn)
    conn.execute("update stepwell.job set state = 'blocked', blocked_by = 'key'")
    assert move(conn, job, run_at="2100-01-01") == []
    assert move(conn, job, queue="x") == [job]
    assert place(conn, job)[:2] == ("blocked", "x")


@pytest.mark.parametrize(
    "given", [{}, {"queue": ""}, {"queue": "x" * 201}, {"priority": 32768}, {"run_at": "infinity"}]
)
def test_a_place_that_no_job_may_have_is_refused(conn: Connection, given: dict[str, Any]) -> None:
    with pytest.raises(psycopg.Error):
        move(conn, calls.enqueue(conn), **given)
