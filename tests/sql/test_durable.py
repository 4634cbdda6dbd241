"""The functions behind durable jobs: the fence on every one, the order of locks, and who is woken."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, LiteralString

import psycopg
import pytest

from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.outcomes import Move
from stepwell.postgres.queries.steps import Saving, Spawning
from stepwell.values.job import NewJob
from stepwell.values.step import NewStep, SavedError
from tests.waiting import until

from . import calls
from .calls import Connection, Held, processor_time


@pytest.fixture
def worker(conn: Connection) -> str:
    return calls.register_worker(conn)


def running(conn: Connection, worker: str, count: int = 1) -> list[Held]:
    calls.enqueue_many(conn, ["{}"] * count)
    return calls.claim(conn, worker, count)


def step(key: str, n: int = 1, value: Any = None, **options: Any) -> NewStep:
    return NewStep(key, n, "step", json.dumps(value), **options)


def save(conn: Connection, job: Held, *steps: NewStep, epoch: int | None = None) -> list[Any]:
    return fetch(conn, queries.steps.save_steps([Saving(job.id, epoch or job.epoch, steps)]))[0][0]


def spawn(conn: Connection, job: Held, count: int, *, epoch: int | None = None) -> list[str | None]:
    children = [
        Spawning(job.id, epoch or job.epoch, NewStep(f"child#{n}", n, "child"), NewJob("work", "{}"))
        for n in range(count)
    ]
    return [child and str(child) for child in fetch(conn, queries.steps.spawn(children))[0]]


def suspend(conn: Connection, job: Held, wait: dict[str, Any], *, epoch: int | None = None) -> list[Any]:
    whole: dict[str, Any] = {"steps": [], "groups": [], "at_once": False, **wait}
    return fetch(conn, queries.outcomes.suspend([job.id], [epoch or job.epoch], [json.dumps(whole)]))[0]


def rows(conn: Connection, query: Any) -> list[Any]:
    return conn.execute(query).fetchall()


def test_a_late_run_changes_nothing(conn: Connection, worker: str) -> None:
    [job] = running(conn, worker)
    calls.snooze(conn, [job])
    [again] = calls.claim(conn, worker)
    assert again.epoch == 2
    assert [str(one) for one in save(conn, job, step("late"))] == [job.id]
    assert spawn(conn, job, 2) == [None, None]
    assert suspend(conn, job, {"at_once": True}) != []
    assert fetch(conn, queries.outcomes.advance([Move(job.id, 1, None, "late", "1", 2)]))[0] != []
    assert fetch(conn, queries.outcomes.restart([job.id], [1], ['{"late": 1}']))[0] != []
    assert fetch(conn, queries.steps.step_saved(job.id, 1, "late")) == [None]
    assert rows(conn, "select count(*) from stepwell.step") == [(0,)]
    assert rows(conn, "select state::text, epoch, cursor, args::text from stepwell.job") == [("running", 2, None, "{}")]


def test_a_late_run_does_not_take_a_large_value_away(conn: Connection, worker: str) -> None:
    [job] = running(conn, worker)
    calls.snooze(conn, [job])
    [again] = calls.claim(conn, worker)
    assert save(conn, again, step("big", 1, "x" * 70_000)) == []
    assert save(conn, job, step("big", 1, "late", replaced=True)) != []
    assert rows(conn, "select key, length(value::text) from stepwell.large_value") == [("big", 70_002)]


def test_a_large_value_is_not_kept_beside_a_small_one_that_was_saved_first(conn: Connection, worker: str) -> None:
    [job] = running(conn, worker)
    assert save(conn, job, step("a", 1, "small")) == []
    assert save(conn, job, step("a", 1, "x" * 70_000), step("b", 2, "y" * 70_000)) == []
    assert rows(conn, "select key from stepwell.large_value") == [("b",)]
    calls.finish(conn, [job], keep=0)
    assert rows(conn, "select key from stepwell.large_value") == []


def test_a_job_whose_workers_die_counts_attempts_from_its_last_saved_step(conn: Connection) -> None:
    [job_id] = calls.enqueue_many(conn, ["{}"], max_attempts=[3])

    def dies(*steps: NewStep) -> tuple[str | None, int]:
        worker = calls.register_worker(conn)
        [job] = calls.claim(conn, worker)
        for one in steps:
            save(conn, job, one)
        conn.execute("update stepwell.worker set lease_until = 'epoch'")
        assert calls.rescue(conn) == [job_id]
        [(attempt,)] = rows(conn, "select attempt from stepwell.jobs")
        return calls.state(conn, job_id), attempt

    assert [dies(step(f"new {n}", n)) for n in range(10)] == [("ready", 1)] * 10
    # Neither the tries of a step nor errors nor what was saved before are progress.
    assert dies(step("new 9", 9), NewStep("new~1", 11, "retry", error=SavedError("E", "no"))) == ("ready", 2)
    assert dies(NewStep("bad", 12, "step", error=SavedError("E", "no"))) == ("failed", 3)
    assert [attempt for (attempt,) in rows(conn, "select attempt from stepwell.failures order by epoch")] == [
        *[1] * 10, 2, 3,
    ]  # fmt: skip


@pytest.mark.slow
def test_a_parent_of_ten_thousand_is_suspended_as_quickly_as_others_for_their_number(
    conn: Connection, worker: str
) -> None:
    def seconds(children: int) -> float:
        [job] = running(conn, worker)
        spawn(conn, job, children)
        began = processor_time(conn)
        assert suspend(conn, job, {"groups": [[f"child#{n}" for n in range(children)]]}) == []
        return processor_time(conn) - began

    few = [seconds(100) for _ in range(7)]  # its plans are made for these
    # A hundred times as many; were it by their square, it would be some thousand times as long.
    assert seconds(10_000) < max(few) * 1_000


def test_the_first_value_of_a_step_stays(conn: Connection, worker: str) -> None:
    [job] = running(conn, worker)
    assert save(conn, job, step("one", 1, "first")) == []
    assert save(conn, job, step("one", 1, "second"), step("two", 2)) == []
    assert rows(conn, "select key, value #>> '{}' from stepwell.step order by n") == [("one", "first"), ("two", None)]
    assert save(conn, job, step("one", 1, "third", replaced=True)) == []
    assert rows(conn, "select value #>> '{}' from stepwell.step where key = 'one'") == [("third",)]


def test_spawning_twice_is_spawning_once(conn: Connection, worker: str) -> None:
    [job] = running(conn, worker)
    children = spawn(conn, job, 3)
    assert spawn(conn, job, 4)[:3] == children
    assert rows(conn, "select count(*) from stepwell.job where parent_id is not null") == [(4,)]


def test_a_parent_is_woken_by_the_last_of_a_group_or_the_first_group_that_is_complete(
    conn: Connection, worker: str
) -> None:
    [parent] = running(conn, worker)
    spawn(conn, parent, 4)
    groups = [["child#0", "child#1"], ["child#2", "child#3"]]
    assert suspend(conn, parent, {"groups": groups}) == []
    by_key = dict(rows(conn, "select parent_key, id::text from stepwell.job where parent_id is not null"))
    held = {job.id: job for job in calls.claim(conn, worker)}
    state = "select state::text from stepwell.job where parent_id is null"
    for key, expected in (("child#0", "waiting"), ("child#2", "waiting"), ("child#3", "ready")):
        calls.finish(conn, [held[by_key[key]]])
        assert rows(conn, state) == [(expected,)]


def test_a_wait_whose_child_has_ended_already_goes_on_at_once(conn: Connection, worker: str) -> None:
    [parent] = running(conn, worker)
    spawn(conn, parent, 1)
    calls.finish(conn, calls.claim(conn, worker))
    suspend(conn, parent, {"groups": [["child#0"]]})
    assert rows(conn, "select state::text, attempt from stepwell.job") == [("ready", 0)]


@pytest.mark.slow
def test_an_event_that_two_emit_at_once_reaches_who_waits(conn: Connection, dsn: str, worker: str) -> None:
    for _ in range(30):
        [job] = running(conn, worker)
        wait = {"key": "w", "n": 1, "kind": "wait", "pending": True, "event": "e", "event_key": ""}
        with ThreadPoolExecutor() as threads:
            both = [threads.submit(emit, dsn) for _ in range(2)]
            suspend(conn, job, {"steps": [wait], "groups": [["w"]]})
            for one in both:
                one.result()
        # It may have to look again, since an event was on its way.
        until(lambda job=job: calls.promote(conn) and calls.state(conn, job.id) == "ready")
        assert rows(conn, "select pending from stepwell.step") == [(False,)]
        conn.execute("delete from stepwell.job")
        conn.execute("delete from stepwell.step")
        conn.execute("delete from stepwell.event")


def emit(dsn: str) -> None:
    with psycopg.connect(dsn) as other:
        other.execute("select stepwell.emit('e')")


def receive(key: str, n: int, name: str) -> dict[str, Any]:
    return {"key": key, "n": n, "kind": "receive", "pending": True, "event": name, "event_key": ""}


def send(conn: Connection, job: Held, name: str, value: int) -> None:
    conn.execute("select stepwell.send(%s::uuid, %s, %s::json)", (job.id, name, str(value)))


@pytest.mark.parametrize("names", [("x", "x"), ("x", "y")], ids=["of one name", "of two names"])
@pytest.mark.parametrize("keys", [("1", "2"), ("2", "1")], ids=["in order", "in reverse"])
def test_what_forgotten_waits_had_taken_goes_to_those_beside_them_in_the_order_it_was_sent(
    conn: Connection, worker: str, names: tuple[str, str], keys: tuple[str, str]
) -> None:
    [job] = running(conn, worker)
    forgotten = [receive(key, n, name) for n, (key, name) in enumerate(zip(keys, names, strict=True), 1)]
    beside = [receive("beside", 3, "x"), receive("beside#2", 4, "x")]
    groups = [[wait["key"]] for wait in (*forgotten, *beside)]
    suspend(conn, job, {"steps": [*forgotten, *beside], "groups": groups})
    for value, name in enumerate(names, 1):
        send(conn, job, name, value)
    [job] = calls.claim(conn, worker)
    assert fetch(conn, queries.steps.forget_waits(job.id, job.epoch, list(keys))) == [True]
    taken = rows(conn, "select value from stepwell.step where not pending order by n")
    assert taken == ([(1,), (2,)] if names == ("x", "x") else [(1,)])
    # Later ones come later.
    send(conn, job, "x", 3)
    taken += [] if names == ("x", "x") else [(3,)]
    assert rows(conn, "select value from stepwell.step where not pending order by n") == taken


@pytest.mark.slow
@pytest.mark.parametrize("end", ["finish", "fail", "suspend"])
def test_the_end_of_children_and_the_cancel_of_their_parent_do_not_deadlock(
    conn: Connection, dsn: str, worker: str, end: str
) -> None:
    """Who ends a child locks its parent, and who cancels a parent its children: in one order."""
    for _ in range(6):
        parents = running(conn, worker, 4)
        for parent in parents:
            spawn(conn, parent, 10)
            suspend(conn, parent, {"groups": [[f"child#{n}" for n in range(10)]]})
        held = calls.claim(conn, worker)
        random.shuffle(held)

        above = [parent.id for parent in parents]

        def end_some(some: list[Held], above: list[str] = above) -> None:
            with psycopg.connect(dsn, autocommit=True) as other:
                ids, epochs = [job.id for job in some], [job.epoch for job in some]
                if end == "finish":
                    count = len(some)
                    ended = queries.outcomes.finish(
                        ids, epochs, ["1"] * count, [60.0] * count, ["succeeded"] * count, [None] * count, above
                    )
                    fetch(other, ended)
                elif end == "suspend":
                    wait = '{"steps": [], "groups": [], "at_once": true}'
                    fetch(other, queries.outcomes.suspend(ids, epochs, [wait] * len(some)))
                else:
                    count = len(some)
                    failed = queries.outcomes.fail(
                        ids, epochs, ["error"] * count, ["E"] * count, ["m"] * count, [None] * count, [None] * count,
                        [1] * count, [60.0] * count, (), above,
                    )  # fmt: skip
                    fetch(other, failed)

        def cancel(parent: Held) -> None:
            with psycopg.connect(dsn, autocommit=True) as other:
                calls.cancel(other, [parent.id])

        with ThreadPoolExecutor(12) as threads:
            asked = [threads.submit(end_some, held[n::8]) for n in range(8)]
            asked += [threads.submit(cancel, parent) for parent in parents]
            for one in asked:
                one.result()
        conn.execute("delete from stepwell.job")
        conn.execute("delete from stepwell.step")


def snooze(conn: Connection, job: Held) -> list[Any]:
    return calls.snooze(conn, [job])


def wait_for_nothing(conn: Connection, job: Held) -> list[Any]:
    return suspend(conn, job, {"at_once": True})


def advance(conn: Connection, job: Held) -> list[Any]:
    return fetch(conn, queries.outcomes.advance([Move(job.id, job.epoch, None, "next", "1", 2, delay=5.0)]))[0]


def restart(conn: Connection, job: Held) -> list[Any]:
    return fetch(conn, queries.outcomes.restart([job.id], [job.epoch], ["{}"]))[0]


@pytest.mark.parametrize("give_back", [wait_for_nothing, snooze, advance, restart])
def test_a_cancelled_child_that_is_given_back_and_the_end_of_its_parent_do_not_deadlock(
    conn: Connection, dsn: str, worker: str, give_back: Callable[[Connection, Held], list[Any]]
) -> None:
    [parent] = running(conn, worker)
    spawn(conn, parent, 1)
    [child] = calls.claim(conn, worker)
    calls.cancel(conn, [parent.id], "enough")
    with (
        psycopg.connect(dsn, autocommit=True) as first,
        psycopg.connect(dsn, autocommit=True) as second,
        ThreadPoolExecutor(2) as threads,
    ):
        for session in (first, second):
            session.execute("set deadlock_timeout = '10ms'")
        # Both come to the parent. Who has locked the child by then holds what the other will want.
        with conn.transaction():
            conn.execute("select from stepwell.job where id = %s::uuid for update", (parent.id,))
            ended = threads.submit(calls.finish, first, [parent], state="cancelled")
            until(lambda: calls.blocked(conn, first))
            given_back = threads.submit(give_back, second, child)
            until(lambda: calls.blocked(conn, second))
        assert ended.result() == []
        assert given_back.result() == []
    assert [calls.state(conn, job.id) for job in (parent, child)] == ["cancelled", "cancelled"]


@pytest.mark.parametrize("undone", [True, False], ids=["undone", "undoing failed"])
@pytest.mark.parametrize("cancelled", [False, True], ids=["failed", "cancelled"])
@pytest.mark.parametrize("before", [False, True], ids=["", "undone since before its type was kept"])
def test_a_parent_is_told_how_its_child_ended_before_it_was_undone(
    conn: Connection, worker: str, undone: bool, cancelled: bool, before: bool
) -> None:
    [parent] = running(conn, worker)
    spawn(conn, parent, 1)
    [child] = calls.claim(conn, worker)
    save(conn, child, step("book", undo=True))
    if cancelled:
        calls.cancel(conn, [child.id], "enough")
    calls.fail(conn, [child], delay=None)
    if before:
        conn.execute(
            "update stepwell.job set undoing = (undoing::jsonb - 'type' - 'message')::json where undoing is not null"
        )
    [child] = calls.claim(conn, worker)
    if undone:
        calls.finish(conn, [child])
    else:
        failed = queries.outcomes.fail(
            [child.id], [child.epoch], ["error"], ["KeyError"], ["lost"], [None], [None], [1], [60.0], ()
        )
        fetch(conn, failed)
    [(told,)] = rows(conn, "select error from stepwell.step")
    assert rows(conn, "select state::text from stepwell.history") == [(told["state"],)]
    if cancelled:
        assert (told["state"], told["type"]) == ("cancelled", None)
        assert told["message"] == ("enough" if undone else "enough; and undoing it failed: KeyError: lost")
    elif before:
        assert told == {"type": None, "message": "ValueError: no such order", "state": "failed"}
    else:
        assert told == {"type": "ValueError", "message": "no such order", "state": "failed"}


def test_what_the_steps_of_a_job_were_comes_back_from_history_as_it_was(conn: Connection, worker: str) -> None:
    [job] = running(conn, worker)
    save(conn, job, step("a", 1, {"x": [1, None]}, fingerprint=-5, seconds=0.25), step("b", 2, undo=False))
    spawn(conn, job, 1)
    wait = {"key": "w", "n": 9, "kind": "wait", "pending": True, "event": "e", "event_key": "k", "delay": 50}
    suspend(conn, job, {"steps": [wait], "groups": [["w"]]})
    query = (
        "select key, n, kind, epoch, saved_at, seconds, pending, timed_out, undo, large, until, fingerprint, child_id,"
        " event, event_key, coalesce(value::text, 'null'), error::text from stepwell.step"
        " where job_id = %s and kind <> 'child' order by n"
    )
    before = conn.execute(query, (job.id,)).fetchall()
    calls.cancel(conn, [job.id])
    assert rows(conn, "select count(*) from stepwell.step") == [(0,)]
    assert calls.retry(conn, [job.id]) == [job.id]
    assert conn.execute(query, (job.id,)).fetchall() == before


@pytest.mark.parametrize("text", ['"\\ud800"', '{"a": "\\udc00\\ud800"}', '"\\u0000"'])
def test_a_value_that_nobody_could_read_again_is_refused_by_all_that_write_values(
    conn: Connection, worker: str, text: str
) -> None:
    [job] = running(conn, worker)
    calls_of: list[tuple[LiteralString, list[Any]]] = [
        ("select stepwell.save_steps(%s, %s, '{a}', '{1}', '{step}', %s)", [text]),
        ("select stepwell.save_steps(%s, %s, '{a}', '{1}', '{step}', '{null}', %s)", [text]),
        ("select stepwell.advance(%s, %s, '{null}', '{next}', %s, '{2}')", [text]),
        ("select stepwell.restart(%s, %s, %s)", [text]),
        (
            "select stepwell.suspend(%s, %s, %s)",
            [f'{{"steps": [{{"key": "k", "n": 1, "kind": "step", "value": {text}}}], "groups": []}}'],
        ),
    ]
    for call, given in calls_of:
        with pytest.raises(psycopg.DataError):
            conn.execute(call, ([job.id], [job.epoch], given))
    assert rows(conn, "select count(*) from stepwell.step") == [(0,)]
    spawn(conn, job, 1)
    [child] = calls.claim(conn, worker)
    with pytest.raises(psycopg.DataError):
        calls.finish(conn, [child], result=text)
    assert calls.finish(conn, [child], result='"\\ud83e\\udda5"') == []
    assert calls.finish(conn, [job], result='"\\ud83e\\udda5"') == []


def test_elements_that_are_missing_are_refused_and_end_no_job_halfway(conn: Connection, worker: str) -> None:
    first, second = running(conn, worker, 2)
    held: list[Any] = [[first.id, second.id], [first.epoch, second.epoch]]
    refused: list[LiteralString] = [
        "select stepwell.finish(%s, %s, null, '{60,null}')",
        "select stepwell.finish(%s, %s, null, '{60,60,60}')",
        "select stepwell.finish(%s, %s, null, '{60}', '{succeeded,null}')",
        "select stepwell.finish(%s, %s, null, '{60}', '{failed}')",
        "select stepwell.save_steps(%s, %s, '{a}', '{1,2}', '{step}', '{}')",
        "select stepwell.save_steps(%s, %s, '{a,b}', '{1,null}', '{step}', '{}')",
        "select stepwell.save_steps(%s, %s, '{a,b}', '{1,2}', null, '{}')",
        "select stepwell.advance(%s, %s, null, '{next}', '{1,2}', '{2,2}')",
        "select stepwell.restart(%s, %s, '{1}')",
        "select stepwell.suspend(%s, %s, '{\"{}\"}')",
        """select stepwell.suspend(%s, %s, array['{"groups": []}', '{"groups": [["a"]]}'])""",
        """select stepwell.suspend(%s, %s, array_fill('{"groups": [["a"]], "steps": [{"key": "a"}]}'::text, '{2}'))""",
        "select stepwell.spawn(%s, %s, '{a,null}', '{1,2}', '{work}', '{\"{}\",\"{}\"}')",
    ]
    for call in refused:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="stepwell: "):
            conn.execute(call, held)
    # What an attempt failed with may be left out; the job is tried again.
    conn.execute("select stepwell.fail(%s, %s, null, null, null, null, '{0,0}', null, null)", held)
    assert rows(conn, "select state::text, attempt from stepwell.job") == [("ready", 1)] * 2
    assert rows(conn, "select reason, type, message from stepwell.failure") == [("error", "Error", "")] * 2


def test_a_job_with_steps_does_not_end_where_its_newest_steps_are_not_seen(
    conn: Connection, dsn: str, worker: str
) -> None:
    [job] = running(conn, worker)
    save(conn, job, step("a"))
    with psycopg.connect(dsn) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select")
        save(conn, job, step("b", 2))
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="read committed"):
            calls.finish(other, [job])
    assert calls.finish(conn, [job]) == []
    assert rows(conn, "select count(*) from stepwell.step") == [(0,)]
    assert rows(conn, "select key from stepwell.steps order by n") == [("a",), ("b",)]


def test_a_job_that_is_named_twice_moves_once(conn: Connection, worker: str) -> None:
    [job] = running(conn, worker)
    move = "select stepwell.advance(%s::uuid[], %s, '{first,first}', '{next,next}', '{1,1}', '{2,2}')"
    assert calls.one(conn.execute(move, ([job.id] * 2, [job.epoch] * 2))) == []
    steps = conn.execute("select key, n from stepwell.step where job_id = %s order by n", (job.id,)).fetchall()
    assert steps == [("first", 1), ("next", 2)]


def test_a_job_suspended_by_two_runs_at_once_has_what_the_run_that_holds_it_says(conn: Connection, worker: str) -> None:
    [job] = running(conn, worker)

    def wait(key: str) -> str:
        step = {"key": key, "n": 1, "kind": "wait", "pending": True, "event": key}
        return json.dumps({"steps": [step], "groups": [[key]], "at_once": False})

    refused = conn.execute(
        "select stepwell.suspend(%s::uuid[], %s, %s)",
        ([job.id] * 3, [None, job.epoch, job.epoch - 1], [wait("none"), wait("held"), wait("old")]),
    )
    assert calls.one(refused) == []
    assert rows(conn, "select key from stepwell.step") == [("held",)]
