"""The look for ready jobs of which no notification told."""

from __future__ import annotations

import pytest

from . import calls
from .calls import Connection, FirstReady

CLOCK = 1_800_000_000.0


@pytest.fixture
def worker(conn: Connection) -> str:
    calls.set_clock(conn, CLOCK)
    return calls.register_worker(conn)


def test_each_rank_has_its_first_job(conn: Connection, worker: str) -> None:
    for priority, run_at in ((0, CLOCK - 5), (0, CLOCK - 9), (7, CLOCK - 1)):
        calls.enqueue(conn, priority=priority, run_at=run_at)
    assert calls.first_ready(conn, worker, "default") == [
        FirstReady("default", -7, -7, CLOCK - 1),
        FirstReady("default", 0, 0, CLOCK - 9),
    ]


def test_of_many_ranks_the_eighth_stands_for_the_rest(conn: Connection, worker: str) -> None:
    calls.enqueue_many(conn, ["{}"] * 50, priorities=list(range(50)))
    found = calls.first_ready(conn, worker, "*")
    assert [(first.rank, first.last_rank) for first in found] == [
        *((rank, rank) for rank in range(-49, -42)),
        (-42, 32767),
    ]


def test_names_and_prefixes_are_looked_up_and_each_queue_once(conn: Connection, worker: str) -> None:
    calls.enqueue_many(conn, ["{}"] * 4, queues=["mail", "mail.eu", "other", "third"])
    for patterns, found in {
        ("mail",): {"mail"},
        ("mail*", "mail"): {"mail", "mail.eu"},
        ("third", "mail.*", "none"): {"third", "mail.eu"},
        ("*",): {"mail", "mail.eu", "other", "third"},
        (): set[str](),
    }.items():
        queues = [first.queue for first in calls.first_ready(conn, worker, *patterns)]
        assert (set(queues), len(queues)) == (found, len(found)), patterns


def test_only_jobs_that_the_worker_may_claim_count(conn: Connection, worker: str) -> None:
    calls.enqueue(conn, "unknown", priority=9)
    calls.enqueue(conn, delay=60.0, priority=8)
    conn.execute("select stepwell.enqueue('work', '{}', 'default', 7, owner => 'shop')")
    named = calls.one(
        conn.execute(
            "select stepwell.register_worker('host', 2, '0', '{default}', '{}', 10, 60, _owner => 'shop',"
            " _named => true)::text"
        )
    )
    calls.enqueue(conn)
    everybodys = calls.register_worker(conn)
    assert [first.rank for first in calls.first_ready(conn, named, "default")] == [-7, 0]
    assert [first.rank for first in calls.first_ready(conn, everybodys, "default", tasks=["unknown"])] == [-9]
    assert calls.first_ready(conn, everybodys, "default", tasks=[]) == []


def test_a_claim_ends_with_its_last_rank(conn: Connection, worker: str) -> None:
    calls.enqueue_many(conn, ["{}"] * 4, priorities=[5, 0, -3, 5])
    place = calls.Position(-5, CLOCK, "00000000-0000-0000-0000-000000000000")
    assert [job.rank for job in calls.claim(conn, worker, positions=[place], last_ranks=[-5])] == [-5, -5]
    assert [job.rank for job in calls.claim(conn, worker, last_ranks=[0])] == [0]
    assert [job.rank for job in calls.claim(conn, worker)] == [3]
