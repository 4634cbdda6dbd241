"""One worker leads; when it falls silent, leaves or dies, another does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.waiting import until

from . import calls
from .calls import Connection

CLOCK = 1_800_000_000.0


@pytest.fixture(autouse=True)
def clock(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK)


def lead(conn: Connection, worker: str, lease: float = 5.0) -> bool:
    return calls.one(conn.execute("select stepwell.lead(%s::uuid, %s)", (worker, lease)))


def leaders(conn: Connection) -> list[str]:
    return [row[0] for row in conn.execute("select id::text from stepwell.workers where leads")]


def test_the_first_leads_until_its_lease_ends(conn: Connection) -> None:
    one, two = calls.register_worker(conn), calls.register_worker(conn)
    assert (lead(conn, one), lead(conn, two), lead(conn, one)) == (True, False, True)
    calls.set_clock(conn, CLOCK + 4)
    assert lead(conn, one)
    calls.set_clock(conn, CLOCK + 8)
    assert not lead(conn, two)
    calls.set_clock(conn, CLOCK + 9.1)
    assert (lead(conn, two), lead(conn, one)) == (True, False)
    assert leaders(conn) == [two]


def test_one_that_leaves_is_succeeded_at_once(conn: Connection) -> None:
    one, two = calls.register_worker(conn), calls.register_worker(conn)
    lead(conn, one)
    calls.unregister_worker(conn, one)
    assert lead(conn, two)


def test_one_that_was_rescued_from_is_succeeded_at_once(conn: Connection) -> None:
    one, two = calls.register_worker(conn, lease=1.0), calls.register_worker(conn)
    lead(conn, one, lease=1000.0)
    calls.set_clock(conn, CLOCK + 2)
    calls.rescue(conn)
    assert lead(conn, two)


def test_one_whose_session_is_gone_is_succeeded_before_its_lease_ends(conn: Connection, dsn: str) -> None:
    one, two = calls.register_worker(conn), calls.register_worker(conn)
    with psycopg.connect(dsn, autocommit=True) as session:
        calls.renew(session, one)
        lead(session, one)
        assert not lead(conn, two)
    until(lambda: lead(conn, two))


def test_a_clock_that_is_set_back_does_not_leave_the_fleet_without_a_leader(conn: Connection) -> None:
    one, two = calls.register_worker(conn), calls.register_worker(conn)
    lead(conn, one)
    calls.set_clock(conn, CLOCK - 3600)
    assert lead(conn, two)


def test_of_many_that_want_to_succeed_at_once_one_does(conn: Connection, dsn: str) -> None:
    gone = calls.register_worker(conn)
    lead(conn, gone)
    calls.set_clock(conn, CLOCK + 6)
    workers = [calls.register_worker(conn) for _ in range(8)]

    def want(worker: str) -> bool:
        with psycopg.connect(dsn, autocommit=True) as session:
            return lead(session, worker)

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(want, workers)) == 1
    assert len(leaders(conn)) == 1


def test_one_that_is_not_registered_does_not_lead(conn: Connection) -> None:
    one = calls.register_worker(conn)
    calls.unregister_worker(conn, one)
    assert not lead(conn, one)
    assert calls.one(conn.execute("select not stepwell.lead(null)"))
    assert calls.one(conn.execute("select count(*) from stepwell.leader")) == 0
