"""Jobs whose args do not fit the code of a worker: held, released to other code, and given up."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest
from psycopg.types.json import Jsonb

from . import calls
from .calls import Connection, Held

OLD, NEW = 1, 2


def worker(conn: Connection, *signatures: int, queues: Sequence[str] = ("default",), owner: str | None = None) -> str:
    return calls.one(
        conn.execute(
            "select stepwell.register_worker('host', 1, '0', %s, %s::text, 10, 36000, _owner => %s, _named => %s,"
            " _signatures => %s::integer[])::text",
            (list(queues), Jsonb({"work": {}}), owner, owner is not None, list(signatures)),
        )
    )


def hold(conn: Connection, held: Sequence[Held], *, signature: int = OLD, grace: float = 3600.0) -> list[str]:
    """Returns the ids whose time was over."""
    row = conn.execute(
        "select refused, expired::text[] from stepwell.hold_misfits(%s::uuid[], %s::integer[], %s::integer[],"
        " %s::text[], %s::double precision[])",
        (
            calls.ids(held),
            calls.epochs(held),
            [signature] * len(held),
            ["it does not know 'title'"] * len(held),
            [grace] * len(held),
        ),
    ).fetchone()
    assert row is not None
    assert row[0] == []
    return row[1]


def test_a_held_job_is_claimed_by_no_worker_before_one_with_another_signature_comes(conn: Connection) -> None:
    old = worker(conn, OLD)
    job = calls.enqueue(conn)
    assert hold(conn, calls.claim(conn, old)) == []
    assert calls.promote(conn)[0] == 0
    assert calls.claim(conn, old) == []
    new = worker(conn, NEW)
    assert calls.promote(conn)[0] == 1
    assert calls.claim(conn, old) == []
    assert [(held.id, held.attempt, held.epoch) for held in calls.claim(conn, new)] == [(job, 1, 2)]


def test_registering_a_worker_says_that_something_is_due(conn: Connection, dsn: str) -> None:
    old = worker(conn, OLD)
    with psycopg.connect(dsn, autocommit=True) as ear:
        ear.execute("listen stepwell_due")
        worker(conn, NEW)
        assert list(ear.notifies(timeout=0.2)) == []
        calls.enqueue(conn)
        hold(conn, calls.claim(conn, old))
        assert [note.payload for note in ear.notifies(timeout=60, stop_after=1)] == ["0"]
        worker(conn, NEW)
        assert [note.payload for note in ear.notifies(timeout=60, stop_after=1)] == ["0"]


def test_a_worker_of_the_version_before_does_not_take_a_released_job_before_its_time_is_over(conn: Connection) -> None:
    calls.set_clock(conn, "2030-01-01 00:00+00")
    old, before = worker(conn, OLD), calls.register_worker(conn, lease=36000.0)
    job = calls.enqueue(conn)
    hold(conn, calls.claim(conn, old))
    calls.unregister_worker(conn, worker(conn, NEW))
    worker(conn, NEW)
    assert calls.promote(conn)[0] == 1
    assert calls.claim(conn, before) == []
    calls.set_clock(conn, "2030-01-01 01:00+00")
    assert calls.ids(calls.claim(conn, before)) == [job]


def test_a_job_that_was_released_to_a_worker_that_died_is_not_stuck(conn: Connection) -> None:
    calls.set_clock(conn, "2030-01-01 00:00+00")
    old, new = worker(conn, OLD), worker(conn, NEW)
    calls.enqueue(conn)
    hold(conn, [*calls.claim(conn, old)])
    assert calls.promote(conn)[0] == 1
    calls.unregister_worker(conn, new)
    assert calls.claim(conn, old) == []
    calls.set_clock(conn, "2030-01-01 01:00+00")
    (held,) = calls.claim(conn, old)
    assert hold(conn, [held]) == [held.id]
    assert calls.state(conn, held.id) == "running"
    assert calls.fail(conn, [held], delay=None, reason="bad_args") == []
    assert calls.state(conn, held.id) == "failed"


def test_to_hand_a_job_back_does_not_begin_its_time_anew(conn: Connection) -> None:
    calls.set_clock(conn, "2030-01-01 00:00+00")
    old = worker(conn, OLD)
    calls.enqueue(conn)
    hold(conn, calls.claim(conn, old))
    calls.set_clock(conn, "2030-01-01 01:00+00")
    assert calls.promote(conn)[0] == 1
    for began in (None, False):
        for _ in range(3):
            calls.snooze(conn, calls.claim(conn, old), began=began)
    calls.snooze(conn, calls.claim(conn, old), delay=60.0, began=False)
    calls.set_clock(conn, "2030-01-01 01:02+00")
    assert calls.promote(conn)[0] == 1
    (held,) = calls.claim(conn, old)
    assert hold(conn, [held]) == [held.id]


def test_a_snooze_for_no_time_ends_the_time_for_its_handler_began(conn: Connection) -> None:
    calls.set_clock(conn, "2030-01-01 00:00+00")
    old = worker(conn, OLD)
    calls.enqueue(conn)
    hold(conn, calls.claim(conn, old))
    calls.set_clock(conn, "2030-01-01 01:00+00")
    calls.promote(conn)
    calls.snooze(conn, calls.claim(conn, old), began=True)
    assert hold(conn, calls.claim(conn, old)) == []


@pytest.mark.parametrize("ends", ["a failed attempt", "a snooze"])
def test_a_run_that_began_ends_the_time(conn: Connection, ends: str) -> None:
    calls.set_clock(conn, "2030-01-01 00:00+00")
    old, new = worker(conn, OLD), worker(conn, NEW)
    calls.enqueue(conn)
    hold(conn, calls.claim(conn, old))
    calls.promote(conn)
    taken = calls.claim(conn, new)
    (calls.fail if ends == "a failed attempt" else calls.snooze)(conn, taken, delay=7200.0)
    # It waits for its own time, not for another worker.
    worker(conn, 3)
    assert calls.promote(conn)[0] == 0
    calls.set_clock(conn, "2030-01-01 03:00+00")
    assert calls.promote(conn)[0] == 1
    (held,) = calls.claim(conn, old)
    assert hold(conn, [held]) == []
    assert calls.promote(conn) == (1, None)


def test_rescue_of_a_worker_that_held_a_released_job_leaves_it_to_others_of_its_code(conn: Connection) -> None:
    old, new = worker(conn, OLD), worker(conn, NEW)
    job = calls.enqueue(conn)
    hold(conn, calls.claim(conn, old))
    calls.promote(conn)
    assert calls.ids(calls.claim(conn, new)) == [job]
    assert calls.unregister_worker(conn, new) == [job]
    assert calls.claim(conn, old) == []
    assert calls.ids(calls.claim(conn, worker(conn, NEW))) == [job]


def test_only_some_are_ready_at_a_time(conn: Connection) -> None:
    old = worker(conn, OLD)
    calls.enqueue_many(conn, ["{}"] * 2500)
    hold(conn, calls.claim(conn, old, 2500))
    new = worker(conn, NEW)
    promoted, due = calls.promote(conn)
    assert (promoted, due) == (1000, 0.1)
    # Nobody takes them: it is enough to look each second.
    assert calls.promote(conn) == (0, 1.0)
    assert len(calls.claim(conn, new, 700)) == 700
    assert calls.promote(conn)[0] == 700
    assert len(calls.claim(conn, new, 1000)) == 1000
    promoted, due = calls.promote(conn)
    assert promoted == 800
    assert due is None or due > 1


@pytest.mark.slow
def test_jobs_that_no_worker_may_take_hold_up_no_others(conn: Connection) -> None:
    old = worker(conn, OLD, queues=["a", "b", "c"], owner="shop")
    many = "select stepwell.enqueue_many('{work}', array_fill('{}'::text, '{10100}'), %s, _owners => %s)"
    conn.execute(many, (["a"], None))
    conn.execute(many, (["b"], ["shop"]))
    wanted = {calls.enqueue(conn, queue=queue) for queue in ("b", "c")}
    hold(conn, calls.claim(conn, old, 30000, queues=["a", "b", "c"]))
    new = worker(conn, NEW, queues=["b", "c*"])
    assert calls.promote(conn)[0] == 2
    assert set(calls.ids(calls.claim(conn, new, queues=["b", "c"]))) == wanted


def test_queues_and_owners_of_live_workers_decide(conn: Connection) -> None:
    old = worker(conn, OLD, queues=["mail.eu", "mail.us"], owner="shop")
    for queue in ("mail.eu", "mail.us"):
        calls.enqueue(conn, queue=queue)
        conn.execute("select stepwell.enqueue('work', queue => %s, owner => 'shop')", (queue,))
    hold(conn, calls.claim(conn, old, queues=["mail.eu", "mail.us"]))
    worker(conn, NEW, queues=["mail.eu"], owner="billing")
    assert calls.promote(conn)[0] == 1
    worker(conn, NEW, queues=["mail.u*"], owner="shop")
    assert calls.promote(conn)[0] == 2
    worker(conn, NEW, queues=["*"], owner="shop")
    assert calls.promote(conn)[0] == 1


@pytest.mark.parametrize(
    "given", ["'{1}', '{a}', '{null}'", "'{null}', '{a}', '{1}'", "'{1}', '{a}', '{nan}'", "'{}', '{}', '{}'"]
)
def test_a_job_is_not_left_running_by_a_call_that_says_too_little(conn: Connection, given: str) -> None:
    calls.enqueue(conn)
    (held,) = calls.claim(conn, worker(conn, OLD))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="needs a signature"):
        conn.execute(f"select stepwell.hold_misfits(%s, %s, {given})", ([held.id], [held.epoch]))  # pyright: ignore[reportArgumentType, reportCallIssue]
