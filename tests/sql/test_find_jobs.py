"""stepwell.find_jobs: it looks at so many jobs, and says where it stopped."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from . import calls
from .calls import Connection


def find(conn: Connection, **options: Any) -> tuple[list[str], str | None]:
    named = ", ".join(f"_{name} => %s" for name in options)
    row = conn.execute(
        f"select ids::text[], looked_to::text from stepwell.find_jobs({named})".encode(), list(options.values())
    ).fetchone()
    assert row is not None
    return row


def test_it_stops_after_so_many_and_the_next_call_goes_on(conn: Connection) -> None:
    ids = [calls.enqueue(conn, task="rare" if n == 0 else "usual") for n in range(5)]
    assert find(conn, task="rare", look=2) == ([], ids[3])
    assert find(conn, task="rare", look=2, before=ids[3]) == ([], ids[1])
    assert find(conn, task="rare", look=2, before=ids[1]) == ([ids[0]], None)
    # It stops, too, with what was asked for.
    assert find(conn, task="usual", limit=2) == ([ids[4], ids[3]], ids[3])
    assert find(conn, task="usual", limit=2, look=2) == ([ids[4], ids[3]], ids[3])
    assert find(conn, limit=5) == (ids[::-1], ids[0])
    assert find(conn, limit=6) == (ids[::-1], None)


def test_what_has_expired_is_not_found_and_what_is_kept_for_ever_is(conn: Connection) -> None:
    worker = calls.register_worker(conn)
    for _ in range(2):
        calls.enqueue(conn)
    held = calls.claim(conn, worker, 2)
    calls.finish(conn, held)
    conn.execute("update stepwell.history set expires_at = now() - interval '1 s' where id = %s", (held[0].id,))
    conn.execute("update stepwell.history set expires_at = 'infinity' where id = %s", (held[1].id,))
    assert find(conn)[0] == [held[1].id]


def test_ages_bound_the_walk_unless_the_clock_is_set(conn: Connection) -> None:
    job = calls.enqueue(conn)
    assert find(conn, enqueued_after="now", look=1) == ([], job), "it was not looked at"
    # No id can be of so long ago, or of so late: nothing is looked at.
    conn.execute("update stepwell.job set enqueued_at = '2200-01-01'")
    assert find(conn, enqueued_after="2199-01-01", look=1) == ([], None)
    conn.execute("update stepwell.job set enqueued_at = '1999-01-01'")
    assert find(conn, enqueued_before="2000-01-01", look=1) == ([], None)
    conn.execute("insert into stepwell.clock values ('2200-01-01')")
    conn.execute("update stepwell.job set enqueued_at = '2200-01-01'")
    assert find(conn, enqueued_after="2199-01-01") == ([job], None)


@pytest.mark.parametrize("at", ["-infinity", "infinity", "4713-01-01 BC", "294276-01-01", "0001-01-01"])
def test_any_time_can_be_given(conn: Connection, at: str) -> None:
    calls.enqueue(conn)
    assert len(find(conn, enqueued_after=at)[0]) == (at not in ("infinity", "294276-01-01"))
    assert len(find(conn, enqueued_before=at)[0]) == (at in ("infinity", "294276-01-01"))


@pytest.mark.parametrize("name", ["limit", "look"])
@pytest.mark.parametrize("value", [0, -1, None, 1_000_001])
def test_a_bound_must_be_one(conn: Connection, name: str, value: int | None) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="between 1 and 1000000"):
        find(conn, **{name: value})


def test_no_state_at_all_matches_nothing(conn: Connection) -> None:
    calls.enqueue(conn)
    assert find(conn, states="{}") == ([], None)


def test_a_job_that_is_tried_again_is_found_by_the_error_of_its_last_attempt(conn: Connection) -> None:
    """The lists show it, and the filter passed over it."""
    worker = calls.register_worker(conn)
    calls.enqueue(conn)
    [job] = calls.claim(conn, worker)
    calls.fail(conn, [job], delay=60.0)
    calls.enqueue(conn)
    for state in ("scheduled", "ready", "running"):
        holder = worker if state == "running" else None
        conn.execute("update stepwell.job set state = %s, worker_id = %s where id = %s", (state, holder, job.id))
        assert find(conn, error="SUCH Order") == ([job.id], None)
        assert find(conn, error="such order", states=[state])[0] == [job.id]
        assert find(conn, error="else") == ([], None)
        page = calls.one(conn.execute("select stepwell.dashboard_jobs(_error => 'SUCH Order')"))
        assert [found["id"] for found in page["jobs"]] == [job.id]
        assert page["jobs"][0]["error"] == "ValueError: no such order"
        found = calls.one(conn.execute("select stepwell.preview_bulk('cancel', '{\"error\": \"such order\"}')"))
        assert found["count"] == 1
