"""Promoting: what is due becomes ready, at its time and in its order."""

from __future__ import annotations

import psycopg
import pytest

from . import calls
from .calls import Connection

CLOCK = 1_800_000_000.0


@pytest.fixture(autouse=True)
def clock(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK)


def test_what_is_due_becomes_ready_in_its_old_place(conn: Connection) -> None:
    due, later = calls.enqueue(conn, delay=5.0), calls.enqueue(conn, delay=5.5)
    calls.set_clock(conn, CLOCK + 5)
    assert calls.promote(conn) == (1, 0.5)
    assert (calls.state(conn, due), calls.state(conn, later)) == ("ready", "scheduled")
    (held,) = calls.claim(conn, calls.register_worker(conn))
    assert (held.id, held.run_at) == (due, CLOCK + 5)


def test_with_nothing_scheduled_there_is_no_next_time(conn: Connection) -> None:
    calls.enqueue(conn)
    assert calls.promote(conn) == (0, None)


def test_a_round_takes_the_earliest_and_says_that_more_are_due(conn: Connection) -> None:
    ids = calls.enqueue_many(conn, ["{}"] * 4, delays=[4.0, 1.0, 3.0, 2.0])
    calls.set_clock(conn, CLOCK + 10)
    assert calls.promote(conn, 3) == (3, 0.0)
    assert [calls.state(conn, job_id) for job_id in ids] == ["scheduled", "ready", "ready", "ready"]
    assert calls.promote(conn, 3) == (1, None)


def test_what_another_is_promoting_is_passed_over(conn: Connection, dsn: str) -> None:
    calls.enqueue_many(conn, ["{}"] * 3, delays=[1.0, 2.0, 3.0])
    calls.set_clock(conn, CLOCK + 10)
    with psycopg.connect(dsn) as other:
        assert calls.promote(other, 1)[0] == 1
        assert calls.promote(conn)[0] == 2
    assert calls.promote(conn) == (0, None)


def test_a_look_that_goes_back_for_a_while_leaves_what_was_due_before(conn: Connection) -> None:
    old, new = calls.enqueue(conn, delay=1.0), calls.enqueue(conn, delay=100.0)
    calls.set_clock(conn, CLOCK + 110)
    assert conn.execute("select promoted, next_due from stepwell.promote(_since => 60)").fetchone() == (1, None)
    assert (calls.state(conn, old), calls.state(conn, new)) == ("scheduled", "ready")
    assert calls.promote(conn) == (1, None)
