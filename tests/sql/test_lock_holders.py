"""Who has locked a running job: a row lock is named by the session that holds it, and nothing is waited for."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import psycopg
import pytest

from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.outcomes import Move
from stepwell.postgres.queries.steps import Saving, Spawning
from stepwell.values.job import NewJob
from stepwell.values.step import NewStep

from . import calls
from .calls import Connection, Held


@pytest.fixture
def held(conn: Connection) -> list[Held]:
    calls.enqueue_many(conn, ["{}"] * 3)
    return calls.claim(conn, calls.register_worker(conn))


@pytest.fixture
def other(dsn: str) -> Generator[Connection]:
    with psycopg.connect(dsn, application_name="import") as connection:
        yield connection


def holders(conn: Connection, jobs: list[Held], *, with_family: bool = True) -> list[tuple[Any, ...]]:
    conn.execute("select pg_sleep(0.11)")
    return conn.execute(
        "select id::text, pid, role = current_user, application, since < now()"
        " from stepwell.lock_holders(%s::uuid[], %s) order by 1, 2",
        (calls.ids(jobs), with_family),
    ).fetchall()


def send_at_once(session: Connection, job: Held) -> None:
    session.execute("set constraints all immediate")
    session.execute("select stepwell.send(%s::uuid, 'hello')", (job.id,))


def test_nobody_holds_what_nobody_has_locked(conn: Connection, other: Connection, held: list[Held]) -> None:
    assert holders(conn, held) == []
    calls.finish(conn, held[:1])
    send_at_once(other, held[1])
    other.rollback()
    assert holders(conn, held) == []


def test_the_session_that_holds_a_job_is_named(conn: Connection, other: Connection, held: list[Held]) -> None:
    send_at_once(other, held[1])
    assert holders(conn, held) == [(held[1].id, other.info.backend_pid, True, "import", True)]


def test_all_sessions_that_share_a_lock_are_named(
    conn: Connection, other: Connection, dsn: str, held: list[Held]
) -> None:
    conn.execute("update stepwell.job set durable = true")
    with psycopg.connect(dsn) as third:
        for session in (other, third):
            session.execute("select from stepwell.job where id = %s::uuid for key share", (held[0].id,))
        assert [row[1] for row in holders(conn, held)] == sorted([other.info.backend_pid, third.info.backend_pid])
        # They only keep it from ending: its steps can be saved.
        assert holders(conn, held, with_family=False) == []


def test_who_holds_a_parent_holds_up_the_end_of_its_child(
    conn: Connection, other: Connection, held: list[Held]
) -> None:
    child, parent, _ = held
    conn.execute("update stepwell.job set parent_id = %s, parent_key = 'c' where id = %s", (parent.id, child.id))
    other.execute("select from stepwell.job where id = %s for no key update", (parent.id,))
    assert [row[:2] for row in holders(conn, [child])] == [(child.id, other.info.backend_pid)]
    assert holders(conn, [child], with_family=False) == []


def test_a_lock_that_was_taken_after_a_savepoint_is_found(
    conn: Connection, other: Connection, held: list[Held]
) -> None:
    other.execute("savepoint before")
    other.execute("select stepwell.cancel(array[%s::uuid])", (held[0].id,))
    assert [row[:2] for row in holders(conn, held)] == [(held[0].id, other.info.backend_pid)]
    other.execute("release savepoint before")
    assert [row[:2] for row in holders(conn, held)] == [(held[0].id, other.info.backend_pid)]


def test_a_job_that_is_locked_does_not_keep_others_from_being_handed_back(
    conn: Connection, other: Connection, held: list[Held]
) -> None:
    other.execute("select stepwell.cancel(array[%s::uuid])", (held[0].id,))
    handed_back = conn.execute(
        "select stepwell.hand_back_unknown(j.worker_id, '{}', '{}')::text[] from stepwell.job j where j.id = %s",
        (held[0].id,),
    )
    assert sorted(calls.one(handed_back)) == sorted(calls.ids(held[1:]))


def test_every_statement_that_a_worker_writes_with_gives_up_on_a_lock(
    conn: Connection, other: Connection, held: list[Held]
) -> None:
    other.execute("select from stepwell.job for update")
    ids, epochs = calls.ids(held), calls.epochs(held)
    job_id, epoch = ids[0], epochs[0]
    step = NewStep("k", 1, "step", "1")
    child = Spawning(job_id, epoch, step, NewJob("work", "{}", "default"))
    bounded: list[queries.Query[Any]] = [
        queries.outcomes.finish(ids, epochs, ["1"] * 3, [1.0] * 3, ["succeeded"] * 3, [None] * 3),
        queries.outcomes.fail(ids, epochs, ["e"] * 3, ["E"] * 3, ["m"] * 3, [None] * 3, [0.0] * 3, [2] * 3, [1.0] * 3),
        queries.outcomes.snooze(ids, epochs, [0.0] * 3, began=True),
        queries.outcomes.suspend(ids, epochs, ['{"steps": [], "groups": []}'] * 3),
        queries.outcomes.restart(ids, epochs, ["{}"] * 3),
        queries.outcomes.advance([Move(job_id, epoch, None, "next", "1", 1)]),
        queries.steps.spawn([child]),
        queries.outcomes.report_progress(ids, epochs, ["{}"] * 3),
        queries.steps.forget_waits(job_id, epoch, ["k"]),
        queries.steps.save_waits(job_id, epoch, '{"steps": [], "groups": []}'),
        queries.jobs.cancel_branches(ids, "no"),
    ]
    bounded = [queries.locks.bounded(query, 0.01) for query in bounded]
    bounded.append(queries.steps.save_steps([Saving(job_id, epoch, [step])], 0.01))
    bounded.append(queries.outcomes.hold_misfits(ids, epochs, [1] * 3, ["m"] * 3, [1.0] * 3, 0.01))
    for query in bounded:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            fetch(conn, query)
    assert calls.one(conn.execute("show lock_timeout")) == "0"
