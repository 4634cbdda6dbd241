"""Bulk operations: chunk by chunk, each job once, whoever crashes, stops or works beside."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from . import calls
from .calls import Connection


def put(conn: Connection, count: int, state: str = "failed", task: str = "work", queue: str = "default") -> list[str]:
    """Jobs in a state, the newest first."""
    if state in ("succeeded", "failed", "cancelled"):
        rows = conn.execute(
            "insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, epoch, attempt, rank,"
            " state, task, queue, args, error) select stepwell.uuid7(), now() + interval '1 day', now(), now(), now(),"
            " 1, 1, 0, %s, %s, %s, json_build_object('n', n), 'Boom: it' from generate_series(1, %s) as g (n)"
            " returning id::text",
            (state, task, queue, count),
        )
    else:
        rows = conn.execute(
            "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args)"
            " select stepwell.uuid7(), now() + interval '1 hour', now(), %s, %s, %s, json_build_object('n', n)"
            " from generate_series(1, %s) as g (n) returning id::text",
            (state, task, queue, count),
        )
    return [row[0] for row in rows][::-1]


def start(conn: Connection, act: str, filter: dict[str, Any] | None = None, **given: Any) -> str:  # noqa: A002
    row = conn.execute(
        "select stepwell.start_bulk(%s, %s::jsonb, %s::jsonb, %s, 'ada')::text",
        (act, json.dumps(filter or {}), json.dumps(given), None),
    ).fetchone()
    assert row is not None
    return row[0]


def chunk(conn: Connection, bulk: str | None = None, limit: int = 2, idle: float = 0) -> tuple[str | None, str | None]:
    """Work off a chunk without the pause before it."""
    conn.execute("update stepwell.bulk set next_at = now() - interval '1 second' where state = 'running'")
    row = conn.execute(
        "select id::text, state from stepwell.bulk_chunk(%s, _limit => %s, _idle => %s)", (bulk, limit, idle)
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def finish(conn: Connection, bulk: str, limit: int = 500) -> dict[str, Any]:
    while chunk(conn, bulk, limit)[1] == "running":
        pass
    return show(conn, bulk)


def show(conn: Connection, bulk: str) -> dict[str, Any]:
    row = conn.execute("select stepwell.dashboard_bulks(%s)", (bulk,)).fetchone()
    assert row is not None
    return row[0]["bulks"][0]


def states(conn: Connection, ids: list[str]) -> list[str | None]:
    found = dict(
        conn.execute("select id::text, state::text from stepwell.jobs where id = any (%s::uuid[])", (ids,)).fetchall()
    )
    return [found.get(one) for one in ids]


def test_jobs_are_retried_from_the_newest_to_the_oldest_in_chunks(conn: Connection) -> None:
    ids, others = put(conn, 5), put(conn, 2, "cancelled")
    bulk = start(conn, "retry", {"task": "work"})
    assert chunk(conn) == (bulk, "running")
    assert states(conn, ids) == ["ready", "ready", "failed", "failed", "failed"]
    assert finish(conn, bulk, 2)["became"] == {"ready": 5}
    assert states(conn, ids + others) == ["ready"] * 5 + ["cancelled"] * 2
    done = show(conn, bulk)
    assert (done["state"], done["done"], done["skipped"], done["failed"], done["asked_by"]) == ("done", 5, 0, 0, "ada")
    assert done["finished_at"]


def test_a_crash_between_chunks_leaves_no_job_out_and_does_none_twice(conn: Connection, dsn: str) -> None:
    ids = put(conn, 6)
    bulk = start(conn, "retry")
    chunk(conn, bulk)
    with psycopg.connect(dsn) as crashing:
        chunk(crashing, bulk)
        assert show(crashing, bulk)["done"] == 4
        crashing.rollback()
    assert states(conn, ids) == ["ready"] * 2 + ["failed"] * 4
    assert finish(conn, bulk, 2)["done"] == 6
    assert states(conn, ids) == ["ready"] * 6


def test_a_second_session_does_not_wait_and_does_nothing_meanwhile(conn: Connection, dsn: str) -> None:
    put(conn, 4)
    bulk = start(conn, "retry")
    with psycopg.connect(dsn) as first:
        assert chunk(first, bulk) == (bulk, "running")
        row = conn.execute("select id, state, next_in from stepwell.bulk_chunk(%s)", (bulk,)).fetchone()
        assert row is not None
        assert row[:2] == (None, "running")
        assert row[2] >= 0.05
    assert show(conn, bulk)["done"] == 2


def test_the_pause_after_a_chunk_holds_for_every_session(conn: Connection) -> None:
    put(conn, 4)
    bulk = start(conn, "retry")
    chunk(conn, bulk)
    conn.execute("update stepwell.bulk set next_at = clock_timestamp() + interval '1 minute'")
    row = conn.execute("select id, next_in from stepwell.bulk_chunk()").fetchone()
    assert row is not None
    assert row[0] is None
    assert 50 < row[1] <= 60
    conn.execute("update stepwell.bulk set next_at = clock_timestamp() - interval '1 second'")
    idle = conn.execute("select id from stepwell.bulk_chunk(_idle => 30)").fetchone()
    assert idle == (None,)
    assert conn.execute("select next_in from stepwell.bulk_chunk(_id => %s)", (bulk,)).fetchone() is not None
    assert show(conn, bulk)["done"] == 4


def test_a_stopped_operation_changes_no_more(conn: Connection) -> None:
    ids = put(conn, 5)
    bulk = start(conn, "retry")
    chunk(conn, bulk)
    assert conn.execute("select stepwell.stop_bulk(%s)", (bulk,)).fetchone() == (True,)
    assert chunk(conn, bulk) == (None, "stopped")
    assert states(conn, ids).count("failed") == 3
    assert conn.execute("select stepwell.stop_bulk(%s)", (bulk,)).fetchone() == (False,)
    assert conn.execute("select next_in from stepwell.bulk_chunk()").fetchone() == (None,)


def test_a_job_that_was_retried_and_fails_again_is_not_retried_again(conn: Connection) -> None:
    ids = put(conn, 4)
    bulk = start(conn, "retry")
    chunk(conn, bulk)
    worker = calls.register_worker(conn)
    for held in calls.claim(conn, worker):
        calls.fail(conn, [held], delay=None)
    assert states(conn, ids) == ["failed"] * 4
    done = finish(conn, bulk, 2)
    assert (done["done"], states(conn, ids)) == (4, ["failed", "failed", "ready", "ready"])
    # Nor is one that failed for the first time after the start.
    assert done["looked"] == 4


def test_jobs_that_were_enqueued_or_ended_after_the_start_are_left(conn: Connection) -> None:
    before = put(conn, 1, "scheduled")
    bulk = start(conn, "cancel", {"states": ["scheduled"]})
    after = put(conn, 1, "scheduled")
    late = put(conn, 1)
    conn.execute("update stepwell.job set enqueued_at = clock_timestamp() where id = %s", (after[0],))
    conn.execute(
        "update stepwell.history set finished_at = clock_timestamp() + interval '1 s' where id = %s", (late[0],)
    )
    finish(conn, bulk)
    assert states(conn, before + after) == ["cancelled", "scheduled"]
    retry = start(conn, "retry")
    assert finish(conn, retry)["done"] == 0


def test_jobs_that_change_meanwhile_are_skipped(conn: Connection) -> None:
    ids = put(conn, 3, "scheduled")
    conn.execute("update stepwell.job set attempt = 1")
    # A job that has not ended cannot start over.
    bulk = start(conn, "retry", {"states": ["scheduled"]}, from_start=True)
    done = finish(conn, bulk)
    assert (done["done"], done["skipped"], states(conn, ids)) == (0, 3, ["scheduled"] * 3)


def test_a_retry_counts_and_takes_only_scheduled_jobs_that_it_changes(conn: Connection) -> None:
    ids = put(conn, 3, "scheduled")
    # The others were scheduled on purpose: there is no attempt to repeat.
    conn.execute("update stepwell.job set attempt = 1 where id = %s", (ids[0],))
    conn.execute("update stepwell.job set misfit_until = run_at where id = %s", (ids[1],))
    wanted = {"states": ["scheduled"]}
    row = conn.execute("select stepwell.preview_bulk('retry', %s::jsonb)", (json.dumps(wanted),)).fetchone()
    assert row is not None
    assert (row[0]["count"], row[0]["more"]) == (2, False)
    done = finish(conn, start(conn, "retry", wanted))
    assert (done["done"], done["skipped"]) == (2, 0)
    assert states(conn, ids) == ["ready", "ready", "scheduled"]


def test_a_job_that_another_transaction_keeps_locked_is_counted_and_the_others_go_on(
    conn: Connection, dsn: str
) -> None:
    ids = put(conn, 3)
    bulk = start(conn, "retry")
    with psycopg.connect(dsn) as other:
        other.execute("select from stepwell.history where id = %s for update", (ids[1],))
        done = finish(conn, bulk)
    assert (done["done"], done["failed"], done["state"]) == (2, 1, "done")
    assert ids[1] in done["error"]
    assert states(conn, ids) == ["ready", "failed", "ready"]


@pytest.mark.parametrize(
    ("act", "state", "options", "became"),
    [
        ("cancel", "ready", {"reason": "enough"}, {"cancelled": 3}),
        ("run", "scheduled", {}, {"ready": 3}),
        ("delete", "succeeded", {}, {"deleted": 3}),
        ("move", "blocked", {"queue": "elsewhere"}, {"moved": 3}),
    ],
)
def test_every_act_changes_what_matches(
    conn: Connection, act: str, state: str, options: dict[str, Any], became: dict[str, int]
) -> None:
    put(conn, 3, state, queue="a/b")
    left = put(conn, 1, state, queue="c")
    bulk = start(conn, act, {"queue": "a/b"}, **options)
    done = finish(conn, bulk, 2)
    assert (done["state"], done["became"]) == ("done", became)
    assert states(conn, left) == [state]


def test_a_filter_by_argument_metadata_error_and_group(conn: Connection) -> None:
    ids = put(conn, 4)
    conn.execute("update stepwell.history set metadata = '{\"c\": 1}' where id = %s", (ids[0],))
    assert finish(conn, start(conn, "retry", {"metadata": {"c": 1}}))["done"] == 1
    assert finish(conn, start(conn, "retry", {"argument": "n", "value": "3"}))["done"] == 1
    assert finish(conn, start(conn, "retry", {"value": '"n" : 2'}))["done"] == 1
    assert finish(conn, start(conn, "retry", {"error": "nothing like it"}))["done"] == 0
    group = "00000000-0000-7000-8000-000000000000"
    assert finish(conn, start(conn, "retry", {"group": group}))["done"] == 0
    assert finish(conn, start(conn, "retry", {"error": "boom"}))["done"] == 1
    assert states(conn, ids) == ["ready"] * 4


@pytest.mark.parametrize(
    ("act", "filter", "options"),
    [
        ("eat", {}, {}),
        ("retry", {"states": ["succeeded"]}, {}),
        ("delete", {"states": ["running"]}, {}),
        ("cancel", {"states": ["nonsense"]}, {}),
        ("retry", {"colour": "red"}, {}),
        ("retry", {}, {"reason": "x"}),
        ("cancel", {}, {"reason": "x" * 10_001}),
        ("move", {}, {}),
        ("move", {}, {"queue": ""}),
        ("move", {}, {"queue": "x" * 201}),
        ("move", {}, {"priority": 99_999}),
        ("retry", {"worker": "x"}, {}),
        ("retry", {"until": "soon"}, {}),
    ],
)
def test_what_is_wrong_is_refused_at_the_start(
    conn: Connection,
    act: str,
    filter: dict[str, Any],  # noqa: A002
    options: dict[str, Any],
) -> None:
    with pytest.raises(psycopg.Error):
        start(conn, act, filter, **options)
    assert conn.execute("select count(*) from stepwell.bulk").fetchone() == (0,)


def test_a_preview_counts_and_shows_some(conn: Connection) -> None:
    ids = put(conn, 7)
    row = conn.execute("select stepwell.preview_bulk('retry', '{}')").fetchone()
    assert row is not None
    assert (row[0]["count"], row[0]["more"], row[0]["states"]) == (7, False, ["failed"])
    assert [job["id"] for job in row[0]["examples"]] == ids[:5]
    hurried = conn.execute("select stepwell.preview_bulk('retry', '{}', 0)").fetchone()
    assert hurried is not None


def test_old_operations_are_pruned(conn: Connection) -> None:
    old, new = start(conn, "retry"), start(conn, "retry")
    finish(conn, old)
    conn.execute("update stepwell.bulk set finished_at = now() - interval '31 days' where id = %s", (old,))
    assert conn.execute("select stepwell.prune_bulks()").fetchone() == (1,)
    assert show(conn, new)["state"] == "running"


@pytest.mark.parametrize("analysed", [False, True])
def test_a_chunk_reads_no_more_when_a_snapshot_keeps_the_rows_of_the_chunks_before(
    conn: Connection, dsn: str, analysed: bool
) -> None:
    """The walk goes on where it stopped. From the front, it would pass over the dead rows of all chunks before. Only
    the chunk with which the table becomes empty may read them all once, if the table was analysed."""
    put(conn, 3000, "ready")
    bulk = start(conn, "cancel", {"states": ["ready"]})
    with psycopg.connect(dsn) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from stepwell.job")
        if analysed:
            conn.execute("analyze stepwell.job")
        first = _entries_read(conn, bulk)
        for _ in range(7):
            chunk(conn, bulk, 300)
        if analysed:
            conn.execute("analyze stepwell.job")
        last = _entries_read(conn, bulk)
    assert last < 1.5 * first, (first, last)


def test_a_chunk_of_all_ended_jobs_does_not_look_behind_those_that_it_needs(conn: Connection) -> None:
    put(conn, 300, "succeeded")
    put(conn, 3000, "cancelled")
    bulk = start(conn, "delete")
    assert _entries_read(conn, bulk, "history") < 2000


def _entries_read(conn: Connection, bulk: str, table: str = "job") -> int:
    query = (
        "select coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0)::integer from pg_class c"
        f" where c.relkind = 'i' and c.relname like '{table}%' and c.relnamespace = 'stepwell'::regnamespace"
    ).encode()
    with conn.transaction():
        before = conn.execute(query).fetchone()
        chunk(conn, bulk, 300)
        after = conn.execute(query).fetchone()
    assert before is not None
    assert after is not None
    return after[0] - before[0]


def test_args_that_postgres_cannot_read_stop_no_search(conn: Connection) -> None:
    """They come from plain SQL. The search failed, was repeated for ever, and kept all other operations waiting."""
    jobs = put(conn, 3, "scheduled")
    conn.execute("update stepwell.job set args = %s::json where id = %s", (r'{"n": "\ud800"}', jobs[1]))
    done = finish(conn, start(conn, "cancel", {"argument": "n", "value": "1"}))
    assert (done["state"], done["done"]) == ("done", 1)


def test_an_operation_whose_search_fails_is_stopped_and_lets_the_others_go_on(conn: Connection) -> None:
    put(conn, 3, "scheduled")
    broken, other = start(conn, "cancel"), start(conn, "run")
    strange = json.dumps({"strange": 1})
    conn.execute("update stepwell.bulk set filter = filter || %s::jsonb where id = %s", (strange, broken))
    assert chunk(conn, broken) == (broken, "stopped")
    assert "there is no filter strange" in show(conn, broken)["error"]
    assert finish(conn, other)["done"] == 3


def test_an_operation_whose_chunks_time_out_lets_the_others_go_on(conn: Connection, dsn: str) -> None:
    """It stayed the first in line, and each worker tried it again and again."""
    [locked] = put(conn, 1, "scheduled", queue="locked")
    put(conn, 3, "scheduled", queue="free")
    stuck, other = start(conn, "cancel", {"queue": "locked"}), start(conn, "cancel", {"queue": "free"})
    with psycopg.connect(dsn) as holder:
        holder.execute("select from stepwell.job where id = %s for update", (locked,))
        conn.execute("set statement_timeout = '200ms'")
        assert next_chunk(conn) == (stuck, "running")
        assert next_chunk(conn) == (other, "done")
        conn.execute("set statement_timeout = 0")
        assert next_chunk(conn) == (None, None)  # the pause
    found = show(conn, stuck)
    assert (found["done"], found["failed"], found["error"][:15]) == (0, 0, "a chunk failed:")
    assert finish(conn, stuck)["done"] == 1
    assert show(conn, stuck)["error"] is None


def test_an_operation_whose_table_is_locked_tries_again(conn: Connection, dsn: str) -> None:
    """As by a migration. The search failed, and the operation was stopped for good."""
    put(conn, 2, "scheduled")
    bulk = start(conn, "cancel")
    with psycopg.connect(dsn) as holder:
        holder.execute("lock table stepwell.job in access exclusive mode")
        assert chunk(conn, bulk) == (bulk, "running")
    assert show(conn, bulk)["error"].startswith("a chunk failed: ")
    assert finish(conn, bulk)["done"] == 2


def next_chunk(conn: Connection) -> tuple[str | None, str | None]:
    """Work off a chunk as a worker does."""
    row = conn.execute("select id::text, state from stepwell.bulk_chunk()").fetchone()
    assert row is not None
    return row
