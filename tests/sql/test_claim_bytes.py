"""A claim is bounded in bytes, and one job that nobody can read holds up no other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from . import calls
from .calls import Connection

MIB = 1024 * 1024


def put(conn: Connection, count: int, size: int = 100_000, queue: str = "default") -> list[str]:
    text = json.dumps({"x": "x" * (size - 9)})
    return calls.enqueue_many(conn, [text] * count, queues=[queue])


def claim(
    conn: Connection, worker: str, most: int, *queues: str, limit: int = 100, unread: bool = False
) -> list[tuple[Any, ...]]:
    """Each job's id, whether it came with its args, its size if it did not, and whether there is more."""
    names = list(queues or ("default",))
    return conn.execute(
        "select id, args is not null, unread, more from stepwell.claim_jobs(%s::uuid, %s::text[],"
        " array_fill(null::integer, array[%s]), array_fill(null::bigint, array[%s]),"
        " array_fill(null::uuid, array[%s]), '{work}', %s, _most_bytes => %s, _unread => %s) order by id",
        (worker, names, len(names), len(names), len(names), limit, most, unread),
    ).fetchall()


@pytest.fixture
def worker(conn: Connection) -> str:
    return calls.register_worker(conn)


def test_a_claim_ends_with_the_job_that_brings_it_to_the_bound(conn: Connection, worker: str) -> None:
    ids = put(conn, 10)
    assert claim(conn, worker, 250_000) == [(job_id, True, None, True) for job_id in ids[:3]]
    assert claim(conn, worker, 300_000) == [(job_id, True, None, True) for job_id in ids[3:6]]
    assert claim(conn, worker, 1_000_000) == [(job_id, True, None, None) for job_id in ids[6:]]


def test_what_was_picked_and_not_taken_is_free_for_others(conn: Connection, worker: str) -> None:
    put(conn, 5)
    assert len(claim(conn, worker, 1)) == 1
    assert calls.one(conn.execute("select count(*) from stepwell.job where state = 'ready' and epoch = 0")) == 4


def test_one_job_is_claimed_however_large_it_is(conn: Connection, worker: str) -> None:
    [job_id, _] = put(conn, 2, MIB)
    assert claim(conn, worker, 1) == [(job_id, True, None, True)]


def test_the_bound_is_for_all_queues_together(conn: Connection, worker: str) -> None:
    first, second = put(conn, 4, queue="a"), put(conn, 4, queue="b")
    got = claim(conn, worker, 250_000, "a", "b", limit=4)
    assert [job[0] for job in got] == [first[0], first[1], second[0]]
    # It ended in the second queue, and the jobs of that say so.
    assert [job[3] for job in got] == [None, None, True]


def test_small_jobs_are_not_counted_out(conn: Connection, worker: str) -> None:
    ids = put(conn, 2000, 100)
    assert [job[0] for job in claim(conn, worker, 16 * MIB, limit=2000)] == ids


def test_saved_steps_count(conn: Connection, worker: str) -> None:
    ids = put(conn, 3, 100)
    held = calls.claim(conn, worker)
    for job in held:
        conn.execute(
            "select stepwell.save_steps(array[%s]::uuid[], array[%s], '{a}', '{1}', '{step}', array[%s])",
            (job.id, job.epoch, json.dumps("x" * 60_000)),
        )
    calls.snooze(conn, held)
    assert [job[0] for job in claim(conn, worker, 100_000)] == ids[:2]


def test_a_job_over_the_limit_of_a_job_comes_without_what_it_holds(conn: Connection, worker: str) -> None:
    with conn.transaction(force_rollback=True):
        conn.execute("update stepwell.size_limit set bytes = 70000 where name = 'job'")
        [small], [large], [other] = put(conn, 1, 70_000), put(conn, 1, 70_001), put(conn, 1, 10)
        assert claim(conn, worker, 16 * MIB) == [
            (small, True, None, None),
            (large, False, 70_001, None),
            (other, True, None, None),
        ]


def test_jobs_can_be_claimed_unread_and_read_one_by_one(conn: Connection, worker: str) -> None:
    [job_id] = put(conn, 1, 50)
    assert claim(conn, worker, MIB, unread=True) == [(job_id, False, 51, None)]  # with the header of what is stored
    read = "select args ->> 'x', metadata, journal from stepwell.read_claimed(%s::uuid, %s)"
    assert conn.execute(read, (job_id, 1)).fetchall() == [("x" * 41, None, None)]
    assert conn.execute(read, (job_id, 2)).fetchall() == []
