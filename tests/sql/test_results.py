"""What those who wait for results are told."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.steps import Saving
from stepwell.values.step import NewStep
from tests.waiting import until

from . import calls
from .calls import Connection, Held

UNKNOWN = "00000000-0000-7000-8000-000000000000"


def results(conn: Connection, *job_ids: str) -> dict[str, tuple[Any, ...]]:
    rows = conn.execute(
        "select id::text, state::text, task, result::text, error, type, message, traceback"
        " from stepwell.results(%s::uuid[])",
        (list(job_ids),),
    )
    return {row[0]: row[1:] for row in rows}


def test_each_ended_job_is_told_and_an_unknown_one_too_but_no_live_one(conn: Connection) -> None:
    worker = calls.register_worker(conn)
    ready = calls.enqueue(conn, priority=-1)
    scheduled = calls.enqueue(conn, delay=60.0)
    cancelled = calls.enqueue(conn)
    calls.cancel(conn, [cancelled], "mistake")
    calls.enqueue_many(conn, ["{}"] * 3)
    succeeded, failed, running = calls.claim(conn, worker, 3)
    calls.finish(conn, [succeeded], result="7")
    calls.fail(conn, [failed], delay=0.0)
    (failed,) = calls.claim(conn, worker, 1, positions=[succeeded.place])
    calls.fail(conn, [failed], delay=None)
    assert results(conn, ready, scheduled, running.id, succeeded.id, failed.id, cancelled, UNKNOWN) == {
        succeeded.id: ("succeeded", "work", "7", None, None, None, None),
        failed.id: (
            "failed", "work", None, "ValueError: no such order", "ValueError", "no such order", "Traceback",
        ),
        cancelled: ("cancelled", "work", None, "mistake", None, None, None),
        UNKNOWN: (None, None, None, None, None, None, None),
    }  # fmt: skip


def test_a_job_retried_while_it_is_asked_for_is_live_and_not_unknown(conn: Connection, dsn: str) -> None:
    worker = calls.register_worker(conn)
    calls.enqueue(conn)
    (held,) = calls.claim(conn, worker)
    calls.fail(conn, [held], delay=None)
    with (
        psycopg.connect(dsn) as retrier,
        psycopg.connect(dsn, autocommit=True) as waiter,
        ThreadPoolExecutor(1) as thread,
    ):
        # Stops the one who asks where it turns to history.
        retrier.execute("lock table stepwell.history in access exclusive mode")
        told = thread.submit(results, waiter, held.id)
        until(lambda: calls.blocked(conn, waiter))
        calls.retry(retrier, [held.id])
        retrier.commit()
        assert told.result() == {}


def fail_with(conn: Connection, job: Held, message: str, *, again: bool = False) -> None:
    failed = queries.outcomes.fail(
        [job.id], [job.epoch], ["error"], ["ValueError"], [message], [f"Traceback of {message}"],
        [0.0 if again else None], [3], [60.0], (),
    )  # fmt: skip
    assert fetch(conn, failed) == [[]]


@pytest.mark.parametrize("undone", [True, False])
def test_an_undone_job_is_told_with_what_it_failed_with_before(conn: Connection, undone: bool) -> None:
    worker = calls.register_worker(conn)
    calls.enqueue(conn)
    (held,) = calls.claim(conn, worker)
    done = NewStep("book", 1, "step", json.dumps(None), undo=True)
    fetch(conn, queries.steps.save_steps([Saving(held.id, held.epoch, [done])]))
    fail_with(conn, held, "no", again=True)
    (held,) = calls.claim(conn, worker)
    fail_with(conn, held, "no seat")
    (undoing,) = calls.claim(conn, worker)
    # By chance it is how the other begins, or what came before it.
    fail_with(conn, undoing, "no", again=True)
    (undoing,) = calls.claim(conn, worker)
    if undone:
        calls.finish(conn, [undoing])
    else:
        fail_with(conn, undoing, "no way back")
    error = "ValueError: no seat" if undone else "ValueError: no seat; and undoing it failed: ValueError: no way back"
    assert results(conn, held.id)[held.id] == (
        "failed", "work", None, error, "ValueError", "no seat", "Traceback of no seat",
    )  # fmt: skip


def test_a_failure_too_long_for_one_line_is_told_whole(conn: Connection) -> None:
    worker = calls.register_worker(conn)
    calls.enqueue(conn)
    (held,) = calls.claim(conn, worker)
    fail_with(conn, held, "no" * 1000)
    assert results(conn, held.id)[held.id][3:6] == (f"ValueError: {'no' * 494}", "ValueError", "no" * 1000)
