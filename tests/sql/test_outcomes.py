"""How runs end: finish, fail and snooze, each behind the fence; cancel and retry."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.waiting import until

from . import calls
from .calls import DAY, Connection, Held

CLOCK = 1_800_000_000.0


@pytest.fixture
def worker(conn: Connection) -> str:
    calls.set_clock(conn, CLOCK)
    return calls.register_worker(conn)


def run(conn: Connection, worker: str, **options: Any) -> Held:
    """Enqueue a job and claim it."""
    job_id = calls.enqueue(conn, **options)
    (held,) = [held for held in calls.claim(conn, worker) if held.id == job_id]
    return held


def row(conn: Connection, job_id: str) -> dict[str, Any]:
    with conn.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(
            "select state::text, attempt, epoch, extract(epoch from run_at)::double precision as run_at,"
            " extract(epoch from expires_at)::double precision as expires_at, result, error, worker_id::text,"
            " progress from stepwell.jobs where id = %s::uuid",
            (job_id,),
        ).fetchone()
    assert found is not None
    return found


def failures(conn: Connection, job_id: str) -> list[tuple[Any, ...]]:
    return conn.execute(
        "select epoch, attempt, reason, type, message, traceback, worker_id::text from stepwell.failures"
        " where job_id = %s::uuid order by epoch",
        (job_id,),
    ).fetchall()


def test_a_finished_job_moves_to_history_with_its_result(conn: Connection, worker: str) -> None:
    held = run(conn, worker)
    assert calls.finish(conn, [held], result='{"n": 1}', keep=DAY) == []
    assert row(conn, held.id) == {
        "state": "succeeded",
        "attempt": 1,
        "epoch": 1,
        "run_at": CLOCK,
        "expires_at": CLOCK + DAY,
        "result": {"n": 1},
        "error": None,
        "worker_id": worker,
        "progress": None,
    }
    assert calls.one(conn.execute("select count(*) from stepwell.job")) == 0


def test_a_result_of_none_is_kept_as_null(conn: Connection, worker: str) -> None:
    held = run(conn, worker)
    calls.finish(conn, [held], result="null")
    assert calls.one(conn.execute("select result::text from stepwell.jobs")) == "null"


@pytest.mark.parametrize("end", [calls.finish, calls.fail, calls.snooze])
def test_a_late_worker_is_refused_and_changes_nothing(conn: Connection, worker: str, end: Any) -> None:
    late = run(conn, worker)
    calls.snooze(conn, [late])
    assert end(conn, [late]) == [late.id], "given back"
    (newer,) = calls.claim(conn, worker)
    before = row(conn, late.id)
    assert end(conn, [late]) == [late.id], "somebody else has it"
    assert row(conn, late.id) == before
    calls.finish(conn, [newer])
    assert end(conn, [newer]) == [newer.id], "ended already"
    assert end(conn, [newer._replace(id="00000000-0000-7000-8000-000000000000")]), "never was"
    assert failures(conn, late.id) == []


@pytest.mark.parametrize("end", [calls.finish, calls.fail, calls.snooze])
def test_what_is_refused_does_not_hinder_the_rest_of_its_batch(conn: Connection, worker: str, end: Any) -> None:
    good, stale = run(conn, worker), run(conn, worker)
    calls.snooze(conn, [stale])
    assert end(conn, [stale, good]) == [stale.id]
    assert row(conn, good.id)["state"] != "running"


@pytest.mark.parametrize("end", [calls.finish, calls.fail, calls.snooze])
def test_the_same_outcome_twice_in_a_batch_counts_once(conn: Connection, worker: str, end: Any) -> None:
    held = run(conn, worker)
    assert end(conn, [held, held]) == []
    assert calls.one(conn.execute("select count(*) from stepwell.jobs")) == 1
    assert len(failures(conn, held.id)) == (1 if end is calls.fail else 0)
    assert row(conn, held.id)["attempt"] == (0 if end is calls.snooze else 1)


@pytest.mark.parametrize("end", [calls.finish, calls.fail, calls.snooze])
def test_an_empty_batch_does_nothing(conn: Connection, worker: str, end: Any) -> None:
    assert end(conn, []) == []


def test_a_failed_attempt_is_recorded_and_tried_again(conn: Connection, worker: str) -> None:
    held = run(conn, worker)
    calls.report_progress(conn, [held], '"half"')
    assert calls.fail(conn, [held], delay=5.0) == []
    after = row(conn, held.id)
    assert (after["state"], after["attempt"], after["run_at"]) == ("scheduled", 1, CLOCK + 5)
    assert (after["worker_id"], after["progress"]) == (None, None)
    assert failures(conn, held.id) == [(1, 1, "error", "ValueError", "no such order", "Traceback", worker)]


def test_a_retry_without_delay_is_ready_at_once(conn: Connection, worker: str) -> None:
    held = run(conn, worker, run_at=CLOCK - 60)
    calls.fail(conn, [held], delay=0.0)
    after = row(conn, held.id)
    assert (after["state"], after["run_at"]) == ("ready", CLOCK)


@pytest.mark.parametrize(("of_the_job", "of_the_task", "tries"), [(None, 3, 3), (2, 3, 2), (5, 3, 5), (1, 3, 1)])
def test_the_jobs_own_limit_goes_before_the_tasks(
    conn: Connection, worker: str, of_the_job: int | None, of_the_task: int, tries: int
) -> None:
    job_id = calls.enqueue(conn, max_attempts=of_the_job)
    made = 0
    while held := calls.claim(conn, worker):
        made += 1
        calls.fail(conn, held, delay=0.0, max_attempts=of_the_task)
    assert made == tries
    after = row(conn, job_id)
    assert (after["state"], after["attempt"], after["error"]) == ("failed", tries, "ValueError: no such order")
    assert [failure[0] for failure in failures(conn, job_id)] == list(range(1, tries + 1))


def test_an_error_that_must_not_be_retried_fails_for_good(conn: Connection, worker: str) -> None:
    held = run(conn, worker)
    calls.fail(conn, [held], delay=None)
    assert row(conn, held.id)["state"] == "failed"


def test_a_snooze_gives_the_attempt_back(conn: Connection, worker: str) -> None:
    held = run(conn, worker, run_at=CLOCK - 60)
    calls.snooze(conn, [held], delay=5.0)
    after = row(conn, held.id)
    assert (after["state"], after["attempt"], after["epoch"], after["run_at"]) == ("scheduled", 0, 1, CLOCK + 5)


def test_a_snooze_for_no_time_keeps_the_old_place(conn: Connection, worker: str) -> None:
    held = run(conn, worker, run_at=CLOCK - 60)
    calls.snooze(conn, [held])
    after = row(conn, held.id)
    assert (after["state"], after["run_at"]) == ("ready", CLOCK - 60)


def test_progress_is_written_while_the_job_is_held_and_no_longer(conn: Connection, worker: str) -> None:
    held, stale = run(conn, worker), run(conn, worker)
    calls.snooze(conn, [stale])
    calls.report_progress(conn, [stale, held], '"half"')
    assert row(conn, held.id)["progress"] == "half"
    assert row(conn, stale.id)["progress"] is None


def test_still_held_only_for_the_current_run(conn: Connection, worker: str) -> None:
    held = run(conn, worker)
    assert calls.still_held(conn, held)
    calls.snooze(conn, [held])
    assert not calls.still_held(conn, held)
    (newer,) = calls.claim(conn, worker)
    assert not calls.still_held(conn, held)
    assert calls.still_held(conn, newer)


@pytest.mark.parametrize("committed", [True, False])
def test_still_held_waits_for_whoever_is_about_to_finish(
    conn: Connection, dsn: str, worker: str, committed: bool
) -> None:
    held = run(conn, worker)
    with (
        psycopg.connect(dsn) as finisher,
        psycopg.connect(dsn, autocommit=True) as asker,
        ThreadPoolExecutor(1) as thread,
    ):
        calls.finish(finisher, [held])
        answer = thread.submit(calls.still_held, asker, held)
        until(lambda: calls.blocked(conn, asker))
        if committed:
            finisher.commit()
        else:
            finisher.rollback()
        assert answer.result() is not committed


@pytest.mark.parametrize("state", ["ready", "scheduled", "waiting", "blocked"])
def test_a_job_that_waits_is_cancelled_at_once(conn: Connection, worker: str, state: str) -> None:
    job_id = calls.enqueue(conn)
    conn.execute("update stepwell.job set state = %s::stepwell.state", (state,))
    assert calls.cancel(conn, [job_id], "mistake") == {job_id: "cancelled"}
    after = row(conn, job_id)
    assert (after["state"], after["error"], after["attempt"]) == ("cancelled", "mistake", 0)
    assert calls.cancel(conn, [job_id]) == {}


@pytest.mark.parametrize(("keep", "expires_at"), [(60.0, CLOCK + 60), (inf, inf), (0.0, None)])
def test_a_cancelled_job_is_kept_for_as_long_as_was_said(
    conn: Connection, worker: str, keep: float, expires_at: float | None
) -> None:
    job_id = calls.enqueue(conn)
    conn.execute("select stepwell.cancel(array[%s::uuid], null, %s)", (job_id, keep))
    rows = conn.execute("select extract(epoch from expires_at)::double precision from stepwell.jobs").fetchall()
    assert rows == ([] if expires_at is None else [(expires_at,)])


def test_a_cancelled_job_is_kept_as_a_failure_of_its_task_would_be(conn: Connection, worker: str) -> None:
    calls.register_worker(conn, tasks={"ship": {"keep_failed": 60.0}})
    shipped, unknown = calls.enqueue(conn, "ship"), calls.enqueue(conn, "other")
    calls.cancel(conn, [shipped, unknown])
    assert row(conn, shipped)["expires_at"] == CLOCK + 60
    assert row(conn, unknown)["expires_at"] == CLOCK + 30 * DAY


@pytest.mark.parametrize("end", [calls.finish, calls.fail, calls.snooze])
def test_a_running_job_ends_when_its_handler_does(conn: Connection, worker: str, end: Any) -> None:
    held = run(conn, worker)
    assert calls.cancel(conn, [held.id], "mistake") == {held.id: "running"}
    assert calls.renew(conn, worker) == [held.id]
    assert row(conn, held.id)["state"] == "running"
    assert end(conn, [held]) == []
    after = row(conn, held.id)
    if end is calls.finish:
        assert (after["state"], after["error"]) == ("succeeded", None), "it was too late to cancel"
    else:
        assert (after["state"], after["error"]) == ("cancelled", "mistake")
    assert calls.renew(conn, worker) == []


def test_a_handler_that_gives_way_ends_cancelled_with_the_reason(conn: Connection, worker: str) -> None:
    held = run(conn, worker)
    calls.cancel(conn, [held.id], "mistake")
    calls.finish(conn, [held], result=None, state="cancelled")
    after = row(conn, held.id)
    assert (after["state"], after["error"], after["result"]) == ("cancelled", "mistake", None)


def test_a_cancelled_job_of_a_dead_worker_is_not_run_again(conn: Connection, worker: str) -> None:
    held = run(conn, worker)
    calls.cancel(conn, [held.id], "mistake")
    assert calls.unregister_worker(conn, worker) == [held.id]
    assert row(conn, held.id)["state"] == "cancelled"


def test_a_second_cancel_keeps_the_reason_unless_it_has_its_own(conn: Connection, worker: str) -> None:
    held = run(conn, worker)
    calls.cancel(conn, [held.id], "mistake")
    calls.cancel(conn, [held.id])
    assert row(conn, held.id)["error"] == "mistake"
    calls.cancel(conn, [held.id], "enough")
    assert row(conn, held.id)["error"] == "enough"


@pytest.mark.parametrize("end", [calls.finish, calls.fail, calls.snooze])
def test_an_outcome_waits_for_a_cancel_and_is_not_lost(conn: Connection, dsn: str, worker: str, end: Any) -> None:
    held = run(conn, worker)
    with (
        psycopg.connect(dsn) as canceller,
        psycopg.connect(dsn, autocommit=True) as ender,
        ThreadPoolExecutor(1) as thread,
    ):
        calls.cancel(canceller, [held.id], "mistake")
        refused = thread.submit(end, ender, [held])
        until(lambda: calls.blocked(conn, ender))
        canceller.commit()
        assert refused.result() == []
    assert row(conn, held.id)["state"] == ("succeeded" if end is calls.finish else "cancelled")


@pytest.mark.parametrize("end", [calls.finish, calls.fail, calls.snooze])
def test_an_outcome_that_waited_for_a_rescue_is_refused(conn: Connection, dsn: str, worker: str, end: Any) -> None:
    held = run(conn, worker)
    with (
        psycopg.connect(dsn) as rescuer,
        psycopg.connect(dsn, autocommit=True) as ender,
        ThreadPoolExecutor(1) as thread,
    ):
        calls.unregister_worker(rescuer, worker)
        calls.claim(rescuer, calls.register_worker(rescuer))
        refused = thread.submit(end, ender, [held])
        until(lambda: calls.blocked(conn, ender))
        rescuer.commit()
        assert refused.result() == [held.id]
    after = row(conn, held.id)
    assert (after["state"], after["epoch"]) == ("running", 2)
    assert [failure[2] for failure in failures(conn, held.id)] == ["lease_lost"]


def test_a_retried_job_keeps_its_id_and_epoch_and_has_fresh_attempts(conn: Connection, worker: str) -> None:
    held = run(conn, worker, task="work", args='{"n": 1}', queue="default", priority=5, max_attempts=1)
    calls.fail(conn, [held], delay=0.0, keep=inf)
    calls.set_clock(conn, CLOCK + 60)
    assert calls.retry(conn, [held.id]) == [held.id]
    after = row(conn, held.id)
    assert (after["state"], after["attempt"], after["epoch"], after["run_at"]) == ("ready", 0, 1, CLOCK + 60)
    assert (after["error"], after["expires_at"]) == (None, None)
    (again,) = calls.claim(conn, worker)
    assert (again.id, again.epoch, again.attempt, again.rank) == (held.id, 2, 1, -5)
    assert calls.finish(conn, [held]) == [held.id], "the first run's fence stays closed"
    calls.finish(conn, [again])
    assert row(conn, held.id)["state"] == "succeeded"
    assert len(failures(conn, held.id)) == 1, "what failed before stays on record"


def test_what_succeeded_runs_or_is_ready_is_not_retried(conn: Connection, worker: str) -> None:
    done, running = run(conn, worker), run(conn, worker)
    calls.finish(conn, [done])
    ready = calls.enqueue(conn)
    assert calls.retry(conn, [done.id, running.id, ready]) == []
    assert [row(conn, job_id)["state"] for job_id in (done.id, running.id, ready)] == ["succeeded", "running", "ready"]


def test_a_retry_leaves_alone_what_was_never_tried(conn: Connection, worker: str) -> None:
    job_id = calls.enqueue(conn, delay=600.0)
    assert calls.retry(conn, [job_id]) == []
    assert row(conn, job_id)["run_at"] == CLOCK + 600


def test_a_retry_hurries_what_waits_for_its_next_try(conn: Connection, worker: str) -> None:
    held = run(conn, worker)
    calls.fail(conn, [held], delay=600.0)
    assert calls.retry(conn, [held.id]) == [held.id]
    after = row(conn, held.id)
    assert (after["state"], after["attempt"], after["run_at"]) == ("ready", 1, CLOCK)


def test_two_retries_at_once_bring_a_job_back_once(conn: Connection, dsn: str, worker: str) -> None:
    held = run(conn, worker)
    calls.fail(conn, [held], delay=None)
    with (
        psycopg.connect(dsn) as first,
        psycopg.connect(dsn, autocommit=True) as second,
        ThreadPoolExecutor(1) as thread,
    ):
        assert calls.retry(first, [held.id]) == [held.id]
        too_late = thread.submit(calls.retry, second, [held.id])
        until(lambda: calls.blocked(conn, second))
        first.commit()
        assert too_late.result() == []
    assert calls.one(conn.execute("select count(*) from stepwell.jobs")) == 1


def test_an_array_that_begins_at_zero_is_read_from_its_beginning(conn: Connection, worker: str) -> None:
    calls.enqueue(conn)
    [held] = calls.claim(conn, worker)
    refused = conn.execute(
        "select stepwell.finish(%s::uuid[], %s::integer[], '{1}', '[0:0]={60}', '[0:0]={succeeded}')",
        ([held.id], [held.epoch]),
    )
    assert calls.one(refused) == []
    assert calls.state(conn, held.id) == "succeeded"
