"""Workers: their leases, and what becomes of the jobs of those that die."""

from __future__ import annotations

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

CLOCK = 1_800_000_000.0


@pytest.fixture
def worker(conn: Connection) -> str:
    calls.set_clock(conn, CLOCK)
    return calls.register_worker(conn, lease=30.0)


def run(conn: Connection, worker: str, task: str = "work", **options: Any) -> Held:
    calls.enqueue(conn, task, **options)
    (held,) = calls.claim(conn, worker, tasks=[task])
    return held


def failures(conn: Connection, job_id: str) -> list[tuple[Any, ...]]:
    return conn.execute(
        "select reason, type, message from stepwell.failures where job_id = %s::uuid order by epoch", (job_id,)
    ).fetchall()


def test_a_worker_whose_lease_ended_is_removed_and_its_jobs_are_ready_again(conn: Connection, worker: str) -> None:
    held = run(conn, worker)
    calls.set_clock(conn, CLOCK + 29.999)
    assert calls.rescue(conn) == []
    calls.set_clock(conn, CLOCK + 30)
    assert calls.rescue(conn) == [held.id]
    assert calls.state(conn, held.id) == "ready"
    assert calls.one(conn.execute("select count(*) from stepwell.workers")) == 0
    assert failures(conn, held.id) == [
        ("lease_lost", "LeaseLost", f"worker {worker} (pid 1 on host) died while it ran this job")
    ]
    assert calls.finish(conn, [held]) == [held.id], "the dead cannot finish"
    assert calls.renew(conn, worker) is None, "the dead cannot renew"


def test_a_crash_counts_so_a_poison_job_fails_in_the_end(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK)
    job_id = calls.enqueue(conn)
    crashes = 0
    while True:
        worker = calls.register_worker(conn, tasks={"work": {"max_attempts": 3}})
        if not calls.claim(conn, worker):
            break
        crashes += 1
        calls.unregister_worker(conn, worker)
    assert crashes == 3
    assert calls.state(conn, job_id) == "failed"
    assert len(failures(conn, job_id)) == 3


def test_rescue_tells_which_jobs_have_failed_for_good(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK)
    limits: dict[str, dict[str, float]] = {
        "last": {"max_attempts": 1, "keep_failed": 0.0},
        "undone": {"max_attempts": 1},
        "gone": {"max_attempts": 1},
    }
    worker = calls.register_worker(conn, tasks=limits, lease=30.0)
    again, last, undone, gone = (run(conn, worker, task) for task in ("again", "last", "undone", "gone"))
    fetch(
        conn, queries.steps.save_steps([Saving(undone.id, undone.epoch, [NewStep("pay", 1, "step", "1", undo=True)])])
    )
    calls.cancel(conn, [gone.id])
    calls.set_clock(conn, CLOCK + 30)
    rescued = conn.execute("select job_id::text, task, message, failed from stepwell.rescue_jobs()").fetchall()
    died = f"worker {worker} (pid 1 on host) died while it ran this job"
    assert sorted(rescued) == sorted(
        [
            (again.id, "again", died, False),
            (last.id, "last", died, True),
            # It runs once more, to be undone.
            (undone.id, "undone", died, True),
            # It was cancelled, and has ended so.
            (gone.id, "gone", died, False),
        ]
    )
    # That undoing is cut off, too, is no second failure.
    other = calls.register_worker(conn, tasks=limits, lease=30.0)
    calls.claim(conn, other, tasks=["undone"])
    calls.set_clock(conn, CLOCK + 60)
    assert conn.execute("select task, failed from stepwell.rescue_jobs()").fetchall() == [("undone", False)]


def test_rescue_tells_of_the_jobs_of_a_batch_that_must_go_one_by_one(conn: Connection, dsn: str, worker: str) -> None:
    parent = run(conn, worker, "parent")
    child = run(conn, worker, "child", max_attempts=1)
    plain = run(conn, worker, "plain", max_attempts=1)
    conn.execute("update stepwell.job set parent_id = %s, parent_key = 'c' where id = %s", (parent.id, child.id))
    calls.set_clock(conn, CLOCK + 30)
    with psycopg.connect(dsn) as locker:
        locker.execute("select from stepwell.job where id = %s for update", (parent.id,))
        rescued = conn.execute("select job_id::text, failed from stepwell.rescue_jobs()").fetchall()
    assert rescued == [(plain.id, True)]
    assert sorted(conn.execute("select job_id::text, failed from stepwell.rescue_jobs()").fetchall()) == sorted(
        [(parent.id, False), (child.id, True)]
    )


def test_rescue_knows_what_the_task_keeps(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK)
    worker = calls.register_worker(conn, tasks={"work": {"max_attempts": 1, "keep_failed": 60.0}})
    calls.enqueue(conn)
    calls.claim(conn, worker)
    calls.unregister_worker(conn, worker)
    expiry = "select extract(epoch from expires_at)::double precision from stepwell."
    assert calls.one(conn.execute(expiry + "history")) == CLOCK + 60
    assert calls.one(conn.execute(expiry + "failure")) == CLOCK + 60


@pytest.mark.parametrize("tasks", ["7", "[]", '{"work": {"max_attempts": "x"}}', '{"work": {"keep_failed": {}}}'])
def test_a_worker_whose_limits_nobody_could_read_is_not_registered(conn: Connection, tasks: str) -> None:
    with pytest.raises(psycopg.DataError):
        conn.execute("select stepwell.register_worker('host', 1, '0', '{default}', %s, 10, 60)", (tasks,))


def test_a_worker_without_a_lease_is_neither_registered_nor_renewed(conn: Connection, worker: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="a worker cannot be registered"):
        conn.execute("select stepwell.register_worker('host', 1, '0', '{default}', '{}', 10, null)")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="_lease"):
        conn.execute("select stepwell.renew(%s::uuid, null, 0)", (worker,))


def test_a_renewed_lease_is_not_rescued(conn: Connection, worker: str) -> None:
    held = run(conn, worker)
    calls.set_clock(conn, CLOCK + 25)
    assert calls.renew(conn, worker, 30.0) == []
    calls.set_clock(conn, CLOCK + 50)
    with psycopg.connect(conn.info.dsn, autocommit=True) as peer:
        assert calls.rescue(peer) == []
    assert calls.still_held(conn, held)


def test_a_session_that_is_gone_is_noticed_by_two_looks_a_second_apart(conn: Connection, dsn: str, worker: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        calls.renew(session, worker, 3600.0)
        held = run(conn, worker)
        assert calls.rescue(conn) == []
        session.execute("select pg_advisory_unlock_all()")
    assert calls.rescue(conn) == []
    calls.set_clock(conn, CLOCK + 0.999)
    assert calls.rescue(conn) == [], "it may only be reconnecting"
    calls.set_clock(conn, CLOCK + 1)
    assert calls.rescue(conn) == [held.id]


def test_a_session_that_is_gone_is_noticed_too_when_the_clock_is_set_back_between_the_looks(
    conn: Connection, dsn: str, worker: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        calls.renew(session, worker, 3600.0)
        held = run(conn, worker)
        session.execute("select pg_advisory_unlock_all()")
    assert calls.rescue(conn) == []
    calls.set_clock(conn, CLOCK - 600)
    assert calls.rescue(conn) == [], "this is a first look again"
    calls.set_clock(conn, CLOCK - 599)
    assert calls.rescue(conn) == [held.id]


def test_a_reconnect_between_two_looks_saves_the_worker(conn: Connection, dsn: str, worker: str) -> None:
    held = run(conn, worker)
    with psycopg.connect(dsn, autocommit=True) as session:
        calls.renew(session, worker, 3600.0)
        session.execute("select pg_advisory_unlock_all()")
        assert calls.rescue(conn) == []
        calls.set_clock(conn, CLOCK + 5)
        calls.renew(session, worker, 3600.0)
        session.execute("select pg_advisory_unlock_all()")
        assert calls.rescue(conn) == [], "this is a first look again"
        assert calls.still_held(conn, held)
        calls.set_clock(conn, CLOCK + 6)
        assert calls.rescue(conn) == [held.id]
        assert calls.renew(session, worker) is None


def test_a_lock_found_held_again_is_forgiven(conn: Connection, dsn: str, worker: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        calls.renew(session, worker, 3600.0)
        number = calls.one(conn.execute("select number from stepwell.worker"))
        session.execute("select pg_advisory_unlock_all()")
        calls.rescue(conn)
        session.execute("select pg_advisory_lock(1937007981, %s)", (number,))
        calls.set_clock(conn, CLOCK + 5)
        assert calls.rescue(conn) == []
        assert calls.one(conn.execute("select lock_missing_since from stepwell.worker")) is None


def test_a_worker_that_never_held_the_lock_has_only_its_lease(conn: Connection, worker: str) -> None:
    held = run(conn, worker)
    for seconds in (0, 10, 20):
        calls.set_clock(conn, CLOCK + seconds)
        assert calls.rescue(conn) == []
    calls.set_clock(conn, CLOCK + 30)
    assert calls.rescue(conn) == [held.id]


def test_a_lease_that_was_given_before_the_clock_was_set_back_lasts_no_longer_for_it(
    conn: Connection, worker: str
) -> None:
    held = run(conn, worker)
    for seconds in (-3600, -3600 + 29):
        calls.set_clock(conn, CLOCK + seconds)
        assert calls.rescue(conn) == []
    calls.set_clock(conn, CLOCK - 3600 + 30)
    assert calls.rescue(conn) == [held.id]


def test_a_session_that_was_gone_before_the_clock_was_set_back_is_noticed_as_soon(
    conn: Connection, dsn: str, worker: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        calls.renew(session, worker, 3600.0)
        held = run(conn, worker)
    calls.set_clock(conn, CLOCK + 60)
    until(lambda: not calls.rescue(conn) and calls.one(conn.execute("select lock_missing_since from stepwell.worker")))
    for seconds in (30, 30.999):
        calls.set_clock(conn, CLOCK + seconds)
        assert calls.rescue(conn) == []
    calls.set_clock(conn, CLOCK + 31)
    assert calls.rescue(conn) == [held.id]


def test_a_clock_set_forward_does_not_kill_a_worker_that_renews(conn: Connection, dsn: str, worker: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        calls.renew(session, worker, 30.0)
        held = run(conn, worker, max_attempts=1)
        for jump in (1_000.0, 1_005.0):  # two looks, before it comes to its next renewal
            calls.set_clock(conn, CLOCK + jump)
            assert calls.rescue(conn) == []
        assert calls.renew(session, worker, 30.0) == []
        calls.set_clock(conn, CLOCK + 1_034.0)
        assert calls.rescue(conn) == []
        assert calls.finish(conn, [held]) == []


def test_a_session_that_does_not_renew_is_rescued_from_half_a_lease_later_whoever_holds_its_lock(
    conn: Connection, dsn: str, worker: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        calls.renew(session, worker, 30.0)
        held = run(conn, worker)
        calls.set_clock(conn, CLOCK + 30)
        assert calls.rescue(conn) == []
        calls.set_clock(conn, CLOCK + 44.999)
        assert calls.rescue(conn) == []
        calls.set_clock(conn, CLOCK + 45)
        assert calls.rescue(conn) == [held.id]
        assert calls.renew(session, worker) is None


def test_a_session_that_is_gone_with_its_lease_is_rescued_from_at_once(conn: Connection, dsn: str, worker: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        calls.renew(session, worker, 30.0)
    held = run(conn, worker)
    calls.set_clock(conn, CLOCK + 30)
    # The server may need a moment to notice that the session has ended.
    assert until(lambda: calls.rescue(conn)) == [held.id]


def test_an_overdue_worker_is_given_its_time_anew_when_the_clock_is_set_back(
    conn: Connection, dsn: str, worker: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        calls.renew(session, worker, 30.0)
        held = run(conn, worker)
        calls.set_clock(conn, CLOCK + 100)
        assert calls.rescue(conn) == []
        calls.set_clock(conn, CLOCK + 40)  # still past its lease, but before it was missed
        assert calls.rescue(conn) == []
        calls.set_clock(conn, CLOCK + 10)  # its lease lasts again
        assert calls.rescue(conn) == []
        calls.set_clock(conn, CLOCK + 200)
        assert calls.rescue(conn) == []
        calls.set_clock(conn, CLOCK + 215)
        assert calls.rescue(conn) == [held.id]


def test_renewing_twice_in_one_session_takes_the_lock_once(conn: Connection, worker: str) -> None:
    calls.renew(conn, worker)
    calls.renew(conn, worker)
    assert calls.one(conn.execute("select lock_held from stepwell.worker"))
    number = calls.one(conn.execute("select number from stepwell.worker"))
    assert calls.one(conn.execute("select pg_advisory_unlock(1937007981, %s)", (number,)))
    assert not calls.one(conn.execute("select pg_advisory_unlock(1937007981, %s)", (number,)))


def test_a_claim_under_way_does_not_hold_up_a_rescue_and_is_found_by_the_next(
    conn: Connection, dsn: str, worker: str
) -> None:
    before = run(conn, worker)
    later = calls.enqueue(conn)
    with psycopg.connect(dsn) as claimer:
        assert [held.id for held in calls.claim(claimer, worker)] == [later]
        calls.set_clock(conn, CLOCK + 30)
        assert calls.rescue(conn) == [before.id]
        assert calls.renew(conn, worker) is None
    assert calls.state(conn, later) == "running"
    assert calls.rescue(conn) == [later]
    assert calls.one(conn.execute("select count(*) from stepwell.workers")) == 0


def test_jobs_of_a_worker_that_is_not_registered_are_rescued(conn: Connection, worker: str) -> None:
    held = run(conn, worker)
    other = run(conn, calls.register_worker(conn), queue="default")
    conn.execute("delete from stepwell.worker where id = %s", (worker,))
    assert calls.rescue(conn) == []
    rescued = conn.execute("select job_id::text, task, failed from stepwell.rescue_unregistered()").fetchall()
    assert rescued == [(held.id, "work", False)]
    assert failures(conn, held.id) == [("lease_lost", "LeaseLost", f"worker {worker} is not registered")]
    assert calls.state(conn, other.id) == "running"


def test_a_worker_that_leaves_gives_back_what_it_holds(conn: Connection, worker: str) -> None:
    held = run(conn, worker)
    other = run(conn, calls.register_worker(conn), queue="default")
    assert calls.unregister_worker(conn, worker) == [held.id]
    assert calls.state(conn, held.id) == "ready"
    assert calls.still_held(conn, other)
    assert calls.unregister_worker(conn, worker) == []


def hand_back_unknown(conn: Connection, worker: str, known: list[Held]) -> list[str] | None:
    return calls.one(
        conn.execute(
            "select stepwell.hand_back_unknown(%s::uuid, %s::uuid[], %s::integer[])::text[]",
            (worker, calls.ids(known), calls.epochs(known)),
        )
    )


def test_what_a_worker_does_not_know_of_is_handed_back_without_an_attempt(conn: Connection, worker: str) -> None:
    known, unknown = run(conn, worker), run(conn, worker)
    assert hand_back_unknown(conn, worker, [known]) == [unknown.id]
    assert calls.still_held(conn, known)
    row = conn.execute("select state::text, attempt from stepwell.jobs where id = %s::uuid", (unknown.id,)).fetchone()
    assert row == ("ready", 0)
    assert hand_back_unknown(conn, worker, [known]) == []


def test_a_claim_under_way_must_be_asked_for_again(conn: Connection, dsn: str, worker: str) -> None:
    calls.enqueue(conn)
    with psycopg.connect(dsn) as claimer:
        calls.claim(claimer, worker)
        assert hand_back_unknown(conn, worker, []) is None


def test_counters_of_one_task_are_added_up_and_those_of_none_left_out(conn: Connection) -> None:
    conn.execute(
        "select stepwell.add_stats(array['a', 'a', null, repeat('b', 999)], '{q,q,q,q}', '{1,2,9,9}', '{1}', null,"
        " '{}', '{0.5,0.5,9}', _refused => '{3}')"
    )
    conn.execute("select stepwell.add_stats('{a}', '{q}', '{1}', '{0}', '{0}', '{0}', '{1}')")
    counted = conn.execute("select task, succeeded, failed, cancelled, seconds, refused from stepwell.stat").fetchall()
    assert counted == [("a", 4, 1, 0, 2.0, 3)]
