"""Names and texts are bounded wherever they come in, and one bad row holds up no other."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from . import calls
from .calls import Connection

CLOCK = 1_800_000_000.0
LONG = "q" * 9000


def put_schedule(conn: Connection, **changes: Any) -> None:
    given: dict[str, Any] = {
        "owner": "app",
        "name": "a",
        "task": "work",
        "queue": "default",
        "cron": None,
        "tz": None,
        "every": 60.0,
        "jitter": 0.0,
    }
    given |= changes
    conn.execute(
        "select stepwell.put_schedules(%(owner)s, false, array[%(name)s], array[%(task)s], '{\"{}\"}',"
        " array[%(queue)s], '{0}', array[%(cron)s]::text[], array[%(tz)s]::text[], array[%(every)s]::float8[],"
        " '{skip}', '{1}', array[%(jitter)s]::float8[], '{2100-01-01}')",
        given,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"queue": LONG},
        {"queue": ""},
        {"queue": None},
        {"task": LONG},
        {"task": ""},
        {"name": LONG},
        {"name": ""},
        {"owner": LONG},
        {"owner": None},
        {"cron": LONG, "tz": "UTC", "every": None},
        {"cron": "* * * * *", "tz": LONG, "every": None},
        {"every": float("inf")},
        {"every": float("nan")},
        {"jitter": float("inf")},
        {"jitter": float("nan")},
    ],
)
def test_a_schedule_that_does_not_fit_is_refused(conn: Connection, changes: dict[str, Any]) -> None:
    with pytest.raises(psycopg.DataError, match="is not valid"):
        put_schedule(conn, **changes)
    put_schedule(conn, queue="q" * 200, task="t" * 200, name="n" * 200, owner="o" * 200)


@pytest.mark.parametrize(
    "worker",
    [
        {"host": "h" * 256},
        {"queues": [LONG]},
        {"queues": [""]},
        {"queues": [None]},
        {"owner": "o" * 201},
        {"schedules": [LONG]},
        {"version": LONG},
    ],
)
def test_a_worker_with_names_that_do_not_fit_is_refused(conn: Connection, worker: dict[str, Any]) -> None:
    given: dict[str, Any] = {"host": "h", "version": "1", "queues": ["default"], "owner": "app", "schedules": ["a"]}
    register = (
        "select stepwell.register_worker(%(host)s, 1, %(version)s, %(queues)s::text[], '{}', 1, 60, 0, null, %(owner)s,"
        " %(schedules)s::text[])"
    )
    conn.execute(register, given)
    with pytest.raises(psycopg.DataError, match="a worker's queues and schedules must have names"):
        conn.execute(register, given | worker)
    conn.execute(register, given | {"owner": "o" * 200})


def test_a_step_with_a_key_or_event_that_does_not_fit_is_refused(conn: Connection) -> None:
    worker = calls.register_worker(conn)
    calls.enqueue(conn)
    [job] = calls.claim(conn, worker)
    save = "select stepwell.save_steps(array[%s]::uuid[], array[%s], array[%s], '{1}', '{step}', '{null}')"
    suspend = "select stepwell.suspend(array[%s]::uuid[], array[%s], array[%s])"
    for key in (LONG, ""):
        with pytest.raises(psycopg.Error, match="step_names"):
            conn.execute(save, (job.id, job.epoch, key))
    for step in ({"key": LONG}, {"key": "a", "event": LONG}, {"key": "a", "event": "e", "event_key": LONG}):
        wait = {"steps": [{"n": 1, "kind": "wait", **step}], "groups": [[step["key"]]], "at_once": False}
        with pytest.raises(psycopg.Error, match="step_names"):
            conn.execute(suspend, (job.id, job.epoch, json.dumps(wait)))
    with pytest.raises(psycopg.DataError, match="a queue's name must have"):
        conn.execute(
            "select stepwell.advance(array[%s]::uuid[], array[%s], '{a}', '{b}', '{1}', '{2}', null, array[%s])",
            (job.id, job.epoch, LONG),
        )


def test_no_job_can_have_a_name_that_does_not_fit(conn: Connection) -> None:
    for task, queue in ((LONG, "default"), ("work", LONG), ("", "default"), ("work", "")):
        with pytest.raises(psycopg.errors.CheckViolation, match="job_names"):
            conn.execute(
                "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args)"
                " values (stepwell.uuid7(), now(), now(), 'ready', %s, %s, '{}')",
                (task, queue),
            )


@pytest.mark.parametrize("at", ["-infinity", "infinity", "4713-01-01 BC", "294276-12-31"])
def test_a_notification_that_would_not_fit_is_cut(conn: Connection, at: str) -> None:
    """A job cannot have such a name or time. If it had one all the same, its transaction could commit."""
    conn.execute("listen stepwell_ready_at")
    for queues in ([LONG], [LONG, "a"]):
        conn.execute(
            "select stepwell.notify_ready(array(select row(q, 0, %s::timestamptz)::stepwell.place"
            " from unnest(%s::text[]) q), 'Infinity')",
            (at, queues),
        )
        heard = [note.payload for note in conn.notifies(timeout=60, stop_after=len(queues))]
        assert len(heard) == len(queues)


def broken(conn: Connection, state: str, **columns: Any) -> str:
    """Put in, as the owner, a job whose row no longer fits its table."""
    conn.execute("alter table stepwell.job drop constraint job_names")
    given = {"worker_id": None, "schedule_id": None, "scheduled_for": None, "parent_id": None} | columns
    job_id = calls.one(
        conn.execute(
            "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args, worker_id, schedule_id,"
            " scheduled_for, parent_id, parent_key) values (stepwell.uuid7(), to_timestamp(%(due)s), now(),"
            " %(state)s::stepwell.state, 'work', %(queue)s, '{}', %(worker_id)s, %(schedule_id)s,"
            " to_timestamp(%(scheduled_for)s), %(parent_id)s::uuid,"
            " case when %(parent_id)s::uuid is not null then 'c' end) returning id::text",
            given | {"due": CLOCK - 10, "state": state, "queue": LONG},
        )
    )
    conn.execute(
        "alter table stepwell.job add constraint job_names check (length(queue) between 1 and 200"
        " and length(task) between 1 and 200 and length(reason) <= 10000) not valid"
    )
    return job_id


def failure(conn: Connection, job_id: str) -> tuple[Any, ...]:
    return conn.execute("select reason, message from stepwell.failures where job_id = %s::uuid", (job_id,)).fetchall()[
        0
    ]


def test_one_due_job_that_cannot_be_made_ready_holds_up_no_other(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK - 100)
    before, after = calls.enqueue(conn, run_at=CLOCK - 20), calls.enqueue(conn, run_at=CLOCK)
    bad = broken(conn, "scheduled")
    calls.set_clock(conn, CLOCK)
    row = conn.execute("select promoted, failed::text[], why[1] from stepwell.promote()").fetchone()
    assert row is not None
    assert row[:2] == (2, [bad])
    assert "cannot be made ready" in row[2]
    assert "job_names" in row[2]
    assert [calls.state(conn, job_id) for job_id in (before, bad, after)] == ["ready", "failed", "ready"]
    assert failure(conn, bad) == ("broken", row[2])
    assert calls.promote(conn) == (0, None)


def test_one_job_of_a_dead_worker_that_cannot_run_again_holds_up_no_other(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK)
    worker = calls.register_worker(conn, lease=1)
    first, second = calls.enqueue(conn), calls.enqueue(conn)
    assert len(calls.claim(conn, worker)) == 2
    bad = broken(conn, "running", worker_id=worker)
    calls.set_clock(conn, CLOCK + 10)
    assert set(calls.rescue(conn)) == {first, second, bad}
    assert [calls.state(conn, job_id) for job_id in (first, bad, second)] == ["ready", "failed", "ready"]
    assert "cannot run again" in failure(conn, bad)[1]
    assert conn.execute("select from stepwell.worker").fetchall() == []


def run_of(conn: Connection, schedule: Any, state: str, at: float) -> str:
    return calls.one(
        conn.execute(
            "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args, schedule_id,"
            " scheduled_for) values (stepwell.uuid7(), to_timestamp(%s), now(), %s::stepwell.state, 'work',"
            " 'default', '{}', %s, to_timestamp(%s)) returning id::text",
            (CLOCK - 10, state, schedule, at),
        )
    )


def test_a_blocked_run_that_cannot_go_fails_and_the_next_one_goes(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK)
    put_schedule(conn)
    schedule = calls.one(conn.execute("update stepwell.schedule set overlap = 'queue' returning id"))
    worker = calls.register_worker(conn)

    live = run_of(conn, schedule, "ready", CLOCK - 3)
    bad = broken(conn, "blocked", schedule_id=schedule, scheduled_for=CLOCK - 2)
    good = run_of(conn, schedule, "blocked", CLOCK - 1)
    assert calls.finish(conn, calls.claim(conn, worker)) == []
    assert [calls.state(conn, job_id) for job_id in (live, bad, good)] == ["succeeded", "failed", "ready"]


def queueing_schedule(conn: Connection) -> Any:
    put_schedule(conn)
    return calls.one(conn.execute("update stepwell.schedule set overlap = 'queue' returning id"))


def test_ten_broken_runs_fail_in_one_call_and_upkeep_does_the_rest(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK)
    schedule = queueing_schedule(conn)
    live = run_of(conn, schedule, "ready", CLOCK - 100)
    bad = [broken(conn, "blocked", schedule_id=schedule, scheduled_for=CLOCK - 50 + n) for n in range(25)]
    good = run_of(conn, schedule, "blocked", CLOCK - 1)
    other = str(uuid4())
    behind = run_of(conn, other, "blocked", CLOCK - 1)
    assert calls.finish(conn, calls.claim(conn, calls.register_worker(conn))) == []
    assert calls.state(conn, live) == "succeeded"
    assert [calls.state(conn, job_id) for job_id in (*bad, good)] == ["failed"] * 10 + ["blocked"] * 16
    # What is broken in one schedule does not hold up another.
    assert calls.one(conn.execute("select stepwell.admit(null)")) == 1
    assert [calls.state(conn, job_id) for job_id in (behind, bad[19], bad[20])] == ["ready", "failed", "blocked"]
    assert calls.one(conn.execute("select stepwell.admit(null)")) == 1
    assert [calls.state(conn, job_id) for job_id in (*bad, good)] == ["failed"] * 25 + ["ready"]


def test_a_broken_run_that_somebody_holds_does_not_fail_the_end_of_the_one_before(conn: Connection, dsn: str) -> None:
    calls.set_clock(conn, CLOCK)
    schedule = queueing_schedule(conn)
    live = run_of(conn, schedule, "ready", CLOCK - 100)
    parent = calls.enqueue(conn, queue="elsewhere")
    bad = broken(conn, "blocked", schedule_id=schedule, scheduled_for=CLOCK - 50, parent_id=parent)
    good = run_of(conn, schedule, "blocked", CLOCK - 1)
    worker = calls.register_worker(conn)
    with psycopg.connect(dsn) as holder:
        for held in (parent, bad):
            holder.execute("select from stepwell.job where id = %s for update", (held,))
            if held == parent:
                assert calls.finish(conn, calls.claim(conn, worker, 1)) == []
            else:
                assert calls.one(conn.execute("select stepwell.admit(null)")) == 0
            holder.rollback()
    assert [calls.state(conn, job_id) for job_id in (live, bad, good)] == ["succeeded", "blocked", "blocked"]
    assert calls.one(conn.execute("select stepwell.admit(null)")) == 1
    assert [calls.state(conn, job_id) for job_id in (bad, good)] == ["failed", "ready"]
