"""Notifications: hints to workers, and to those who wait for results."""

from __future__ import annotations

from collections.abc import Generator

import psycopg
import pytest
from psycopg import sql

from . import calls
from .calls import Connection

CLOCK = 1_800_000_000.0


@pytest.fixture
def heard(conn: Connection) -> list[tuple[str, str]]:
    """What was notified, by channel and payload. A session that notifies itself hears it before its next reply."""
    heard: list[tuple[str, str]] = []
    conn.add_notify_handler(lambda notify: heard.append((notify.channel, notify.payload)))
    calls.set_clock(conn, CLOCK)
    for channel in ("stepwell_ready_at", "stepwell_due", "stepwell_done", "stepwell_cancel", "stepwell_control"):
        conn.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
    return heard


def ready_at(queue: str, rank: int = 0, last_rank: int | None = None, at: float = CLOCK) -> tuple[str, str]:
    payload = f"{rank} {rank if last_rank is None else last_rank} {at * 1e6:.0f} {queue}"
    return "stepwell_ready_at", payload


@pytest.fixture
def waiting(dsn: str) -> Generator[Connection]:
    """Somebody who waits for results."""
    with psycopg.connect(dsn, autocommit=True) as waiter:
        waiter.execute("select pg_advisory_lock_shared(1937007980, 0)")
        yield waiter
        waiter.execute("select pg_advisory_unlock_all()")


def test_an_enqueue_notifies_once_for_each_queue(conn: Connection, heard: list[tuple[str, str]]) -> None:
    calls.enqueue_many(conn, ["{}"] * 30, queues=["a", "b", "a"] * 10)
    assert sorted(heard) == [ready_at("a"), ready_at("b")]


def test_a_worker_of_schema_6_is_told_the_queue(conn: Connection, heard: list[tuple[str, str]]) -> None:
    conn.execute("listen stepwell_ready")
    conn.execute("unlisten stepwell_ready_at")
    calls.enqueue(conn)
    calls.enqueue_many(conn, ["{}"] * 3, queues=["a", "b", "a"])
    assert sorted(heard) == [("stepwell_ready", queue) for queue in ("a", "b", "default")]


def test_each_rank_of_a_queue_is_told_by_itself(conn: Connection, heard: list[tuple[str, str]]) -> None:
    calls.enqueue_many(conn, ["{}"] * 4, queues=["a", "b", "a", "a"], priorities=[5, 0, -3, 5])
    assert sorted(heard) == sorted([ready_at("a", -5), ready_at("a", 3), ready_at("b")])


def test_of_many_ranks_the_first_is_told_for_all(conn: Connection, heard: list[tuple[str, str]]) -> None:
    calls.enqueue_many(conn, ["{}"] * 9, queues=["a"], priorities=list(range(9)))
    assert heard == [ready_at("a", -8, 32767)]


def test_the_earliest_time_is_told(conn: Connection, heard: list[tuple[str, str]]) -> None:
    calls.enqueue_many(conn, ["{}"] * 3, queues=["a"], run_ats=[CLOCK - 5, CLOCK - 9.5, CLOCK + 100])
    assert heard == [ready_at("a", at=CLOCK - 9.5), ("stepwell_due", "100000")]


def test_an_enqueue_for_later_notifies_when_the_first_is_due(conn: Connection, heard: list[tuple[str, str]]) -> None:
    calls.enqueue_many(conn, ["{}"] * 3, queues=["a", "b", "a"], delays=[9.0, 2.5, 60.0])
    assert heard == [("stepwell_due", "2500")]
    heard.clear()
    calls.enqueue(conn, delay=0.0001)
    assert heard == [("stepwell_due", "1")], "rounded up: at zero it would not be due yet"


def test_an_enqueue_that_is_rolled_back_notifies_nobody(conn: Connection, heard: list[tuple[str, str]]) -> None:
    with conn.transaction(force_rollback=True):
        calls.enqueue(conn)
    conn.execute("select")
    assert heard == []


def test_whatever_makes_a_job_ready_notifies_its_queue(conn: Connection, heard: list[tuple[str, str]]) -> None:
    def heard_after(call: object) -> list[tuple[str, str]]:
        del call
        last = heard.copy()
        heard.clear()
        return last

    worker = calls.register_worker(conn)
    job_id = calls.enqueue(conn, delay=5.0)
    heard.clear()
    calls.set_clock(conn, CLOCK + 5)
    ready = [ready_at("default", at=CLOCK + 5)]
    assert heard_after(calls.promote(conn)) == ready
    assert heard_after(calls.snooze(conn, calls.claim(conn, worker))) == ready
    calls.set_clock(conn, CLOCK + 6)
    assert heard_after(calls.snooze(conn, calls.claim(conn, worker))) == ready, "its old place"
    ready = [ready_at("default", at=CLOCK + 6)]
    assert heard_after(calls.fail(conn, calls.claim(conn, worker), delay=0.0)) == ready
    assert heard_after(calls.fail(conn, calls.claim(conn, worker), delay=7.0)) == [("stepwell_due", "7000")]
    assert heard_after(calls.retry(conn, [job_id])) == ready
    assert heard_after(calls.snooze(conn, calls.claim(conn, worker), delay=7.0)) == [("stepwell_due", "7000")]
    calls.retry(conn, [job_id])
    calls.claim(conn, worker)
    heard.clear()
    assert heard_after(calls.unregister_worker(conn, worker)) == ready
    assert heard_after(conn.execute("select stepwell.pause('default')")) == [("stepwell_control", "")]
    assert heard_after(conn.execute("select stepwell.resume('default')")) == [("stepwell_control", "")]
    assert heard_after(calls.cancel(conn, [job_id])) == []
    assert heard_after(calls.retry(conn, [job_id])) == ready


def test_a_ready_parent_that_the_end_of_a_child_locked_is_announced_again(
    conn: Connection, heard: list[tuple[str, str]]
) -> None:
    """A claim that passes meanwhile skips it, and does not come back."""
    worker = calls.register_worker(conn)
    parent, child = calls.enqueue(conn, queue="parents"), calls.enqueue(conn)
    conn.execute(
        "update stepwell.job set parent_id = %s::uuid, parent_key = 'child' where id = %s::uuid", (parent, child)
    )
    held = calls.claim(conn, worker)
    heard.clear()
    conn.execute(
        "select stepwell.finish(%s::uuid[], %s::integer[], null, '{60}', '{succeeded}', null, %s::uuid[])",
        (calls.ids(held), calls.epochs(held), [parent]),
    )
    assert [note for note in heard if note[0] == "stepwell_ready_at"] == [ready_at("parents")]


def test_nothing_is_notified_when_nothing_became_ready(conn: Connection, heard: list[tuple[str, str]]) -> None:
    calls.promote(conn)
    calls.retry(conn, [])
    calls.rescue(conn)
    calls.enqueue_many(conn, [])
    assert heard == []


def test_an_end_is_notified_when_somebody_waits(
    conn: Connection, waiting: Connection, heard: list[tuple[str, str]]
) -> None:
    worker = calls.register_worker(conn)
    calls.enqueue_many(conn, ["{}"] * 3)
    done, failed, retried = calls.claim(conn, worker)
    cancelled = calls.enqueue(conn)
    heard.clear()
    calls.finish(conn, [done])
    calls.fail(conn, [failed], delay=None)
    calls.cancel(conn, [cancelled])
    calls.fail(conn, [retried], delay=5.0)
    assert [payload for channel, payload in heard if channel == "stepwell_done"] == [done.id, failed.id, cancelled]


def test_an_end_is_not_notified_when_nobody_waits(conn: Connection, heard: list[tuple[str, str]]) -> None:
    worker = calls.register_worker(conn)
    calls.enqueue_many(conn, ["{}"] * 2)
    done, failed = calls.claim(conn, worker)
    heard.clear()
    calls.finish(conn, [done])
    calls.fail(conn, [failed], delay=None)
    assert heard == []


def test_many_ends_fit_into_few_notifications(
    conn: Connection, waiting: Connection, heard: list[tuple[str, str]]
) -> None:
    worker = calls.register_worker(conn)
    ids = calls.enqueue_many(conn, ["{}"] * 450)
    held = calls.claim(conn, worker, 450)
    heard.clear()
    calls.finish(conn, held)
    assert [len(payload.split(",")) for _, payload in heard] == [200, 200, 50]
    assert sorted(",".join(payload for _, payload in heard).split(",")) == ids


def test_the_workers_that_run_cancelled_jobs_are_told_once_each(conn: Connection, heard: list[tuple[str, str]]) -> None:
    workers = [calls.register_worker(conn) for _ in range(2)]
    ids = calls.enqueue_many(conn, ["{}"] * 4)
    for worker in workers:
        calls.claim(conn, worker, 2)
    heard.clear()
    calls.cancel(conn, ids)
    assert sorted(heard) == sorted(("stepwell_cancel", worker) for worker in workers)
