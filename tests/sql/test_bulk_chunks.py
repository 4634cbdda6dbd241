"""Chunks of bulk operations: how many jobs they have, and when the next one begins."""

from __future__ import annotations

import psycopg

from . import calls
from .calls import Connection
from .test_bulk import chunk, finish, next_chunk, put, show, start, states


def size(conn: Connection, bulk: str) -> int:
    return calls.one(conn.execute("select chunk_size from stepwell.bulk where id = %s", (bulk,)))


def test_chunks_that_time_out_become_smaller_until_only_the_job_that_is_to_blame_is_left_out(
    conn: Connection, dsn: str
) -> None:
    """They had 500 jobs each time, and the operation never went on."""
    ids = put(conn, 30, "scheduled")
    heavy = ids[13]
    bulk = start(conn, "cancel")
    with psycopg.connect(dsn) as holder:
        # Any job that takes longer than the chunk may take would do: here, to lock it.
        holder.execute("select from stepwell.job where id = %s for update", (heavy,))
        conn.execute("set statement_timeout = '300ms'")
        sizes: list[int] = []
        while chunk(conn, bulk, 500)[1] == "running" and len(sizes) < 30:
            sizes.append(size(conn, bulk))
        conn.execute("set statement_timeout = 0")
    assert sizes[0] == 6
    assert 1 in sizes
    found = show(conn, bulk)
    assert (found["state"], found["done"], found["failed"], found["skipped"]) == ("done", 29, 1, 0)
    assert found["error"].startswith(f"job {heavy}: canceling statement")
    assert found["looked"] == 30
    assert states(conn, ids) == ["scheduled" if one == heavy else "cancelled" for one in ids]
    assert size(conn, bulk) > 1


def test_a_single_chunk_that_is_interrupted_leaves_its_job_for_the_next_one(conn: Connection, dsn: str) -> None:
    put(conn, 2, "scheduled")
    bulk = start(conn, "cancel")
    conn.execute("update stepwell.bulk set chunk_size = 1")
    with psycopg.connect(dsn) as holder:
        holder.execute("select from stepwell.job for update")
        conn.execute("set statement_timeout = '200ms'")
        assert next_chunk(conn) == (bulk, "running")
        conn.execute("set statement_timeout = 0")
    assert (show(conn, bulk)["failed"], size(conn, bulk)) == (0, 1)
    assert finish(conn, bulk)["done"] == 2


def test_quick_chunks_become_larger_again(conn: Connection) -> None:
    put(conn, 16, "scheduled")
    bulk = start(conn, "cancel")
    conn.execute("update stepwell.bulk set chunk_size = 1")
    done: list[int] = []
    while chunk(conn, bulk, 500)[1] == "running":
        done.append(show(conn, bulk)["done"])
    assert done == [1, 3, 7, 15]
    assert show(conn, bulk)["done"] == 16


def test_an_operation_goes_on_when_the_clock_was_set_back_since_its_last_chunk(conn: Connection) -> None:
    """It waited until the clock was as late again, and seemed to be worked on."""
    put(conn, 4, "scheduled")
    begun, new = start(conn, "cancel"), start(conn, "run", {"task": "none"})
    assert chunk(conn, begun, 2) == (begun, "running")
    conn.execute(
        "update stepwell.bulk set next_at = next_at + interval '1 hour', worked_at = worked_at + interval '1 hour',"
        " started_at = started_at + interval '1 hour'"
    )
    assert show(conn, begun)["idle"] > 3000
    assert show(conn, new)["idle"] > 3000
    assert sorted([next_chunk(conn), next_chunk(conn)]) == sorted([(begun, "done"), (new, "done")])
    assert show(conn, begun)["done"] == 4


def test_a_search_that_is_cancelled_after_a_failed_chunk_is_recorded(conn: Connection, dsn: str) -> None:
    """It was not, so the operation was tried again twice a second."""
    put(conn, 2, "scheduled")
    bulk = start(conn, "cancel")
    conn.execute("update stepwell.bulk set error = 'a chunk failed: canceling statement'")
    with psycopg.connect(dsn) as holder:
        holder.execute("lock table stepwell.job in access exclusive mode")
        conn.execute("set statement_timeout = '200ms'")
        assert next_chunk(conn) == (bulk, "running")
        conn.execute("set statement_timeout = 0")
    found = show(conn, bulk)
    assert (found["failed"], found["error"][:16]) == (0, "a chunk failed: ")
    assert conn.execute("select next_at > clock_timestamp() from stepwell.bulk").fetchone() == (True,)
    assert finish(conn, bulk)["done"] == 2
