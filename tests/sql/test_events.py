"""Events and signals: delivered once their transaction commits, whatever else happens in it."""

from __future__ import annotations

import json
import time
from typing import Any

import psycopg
import pytest
from psycopg import sql

from stepwell import queries
from stepwell.db import fetch

from . import calls
from .calls import Connection, Held
from .test_rights import role


@pytest.fixture
def worker(conn: Connection) -> str:
    return calls.register_worker(conn)


def running(conn: Connection, worker: str) -> Held:
    calls.enqueue(conn)
    [job] = calls.claim(conn, worker, 1)
    return job


def wait(name: str, *, n: int = 1, event_key: str = "", delay: float | None = None) -> dict[str, Any]:
    step = {"key": f"w{n}", "n": n, "kind": "wait", "pending": True, "event": name, "event_key": event_key}
    return step if delay is None else {**step, "delay": delay}


def receive(name: str, *, n: int = 1) -> dict[str, Any]:
    return {**wait(name, n=n), "kind": "receive"}


def suspend(conn: Connection, job: Held, *steps: dict[str, Any]) -> None:
    """Give a job back until one of these waits has ended."""
    given = {"steps": steps, "groups": [[step["key"]] for step in steps], "at_once": False}
    assert fetch(conn, queries.suspend([job.id], [job.epoch], [json.dumps(given)]))[0] == []


def waiting_for(conn: Connection, worker: str, *names: str) -> Held:
    job = running(conn, worker)
    suspend(conn, job, *(wait(name, n=n) for n, name in enumerate(names, 1)))
    assert calls.state(conn, job.id) == "waiting"
    return job


def taken(conn: Connection, job: Held) -> list[Any]:
    """What the waits of a job have got, in their order."""
    found = conn.execute(
        "select value from stepwell.step where job_id = %s::uuid and not pending and kind in ('wait', 'receive')"
        " order by n",
        (job.id,),
    )
    return [value for (value,) in found]


def test_the_trigger_of_events_runs_no_code_of_a_table_that_is_not_theirs(conn: Connection, dsn: str) -> None:
    """With a cast of the caller's own, to read new would run the caller's code as the owner of the schema."""
    usage = "usage on schema stepwell"
    with role(conn, dsn, usage, "execute on all functions in schema stepwell", "create on schema public") as theirs:
        for statement in (
            "create type public.evil as (a bigint)",
            "create function public.steal(public.evil) returns bigint language plpgsql as"
            " $$begin raise exception 'ran as %', current_user; end$$",
            "create cast (public.evil as bigint) with function public.steal(public.evil) as implicit",
            "create temp table mine (id public.evil, transaction xid8 default pg_current_xact_id())",
            "create constraint trigger t after insert on mine deferrable for each row"
            " execute function stepwell.deliver_events()",
        ):
            theirs.execute(sql.SQL(statement))
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"the trigger of the table stepwell\.event"):
            theirs.execute("insert into mine (id) values (row(1))")
        theirs.execute("drop table mine; drop type public.evil cascade")


def test_a_setting_of_the_session_keeps_no_event_from_being_delivered(conn: Connection, worker: str) -> None:
    job = waiting_for(conn, worker, "e")
    conn.execute("set stepwell.delivered = '9223372036854775807'")
    conn.execute("select stepwell.emit('e', null, '1')")
    assert taken(conn, job) == [1]
    assert calls.state(conn, job.id) == "ready"


def test_what_comes_after_constraints_were_made_immediate_is_delivered_too(conn: Connection, worker: str) -> None:
    first, second, third = (waiting_for(conn, worker, name) for name in ("a", "b", "c"))
    with conn.transaction():
        conn.execute("select stepwell.emit('a', null, '1')")
        conn.execute("set constraints all immediate")
        assert taken(conn, first) == [1]
        conn.execute("select stepwell.emit('b', null, '2')")
        assert taken(conn, second) == [2]
        conn.execute("set constraints all deferred")
        conn.execute("select stepwell.emit('c', null, '3')")
        assert taken(conn, third) == []
    assert taken(conn, third) == [3]
    assert [calls.state(conn, job.id) for job in (first, second, third)] == ["ready"] * 3


def test_a_delivery_that_is_rolled_back_to_a_savepoint_is_made_again(conn: Connection, worker: str) -> None:
    jobs = [waiting_for(conn, worker, name) for name in ("a", "b", "c")]
    with conn.transaction():
        conn.execute("select stepwell.emit('a', null, '1'), stepwell.emit('b', null, '2')")
        conn.execute("savepoint s")
        conn.execute("select stepwell.emit('c', null, '3')")
        conn.execute("set constraints all immediate")
        assert [taken(conn, job) for job in jobs] == [[1], [2], [3]]
        conn.execute("rollback to savepoint s")
        assert [taken(conn, job) for job in jobs] == [[], [], []]
    assert [taken(conn, job) for job in jobs] == [[1], [2], []]
    assert [calls.state(conn, job.id) for job in jobs] == ["ready", "ready", "waiting"]


@pytest.mark.parametrize("immediate", [False, True], ids=["at commit", "at once"])
def test_what_is_given_back_after_a_later_event_of_the_transaction_is_delivered(
    conn: Connection, worker: str, immediate: bool
) -> None:
    job = running(conn, worker)
    suspend(conn, job, receive("x", n=1), receive("x", n=2))
    conn.execute("select stepwell.send(%s::uuid, 'x', '1')", (job.id,))
    [job] = calls.claim(conn, worker)
    other = waiting_for(conn, worker, "later")
    with conn.transaction():
        if immediate:
            conn.execute("set constraints all immediate")
        conn.execute("select stepwell.emit('later', null, '2')")
        # Under its old number, which is less than that of the event before.
        assert fetch(conn, queries.forget_waits(job.id, job.epoch, ["w1"])) == [True]
    assert taken(conn, job) == [1]
    assert taken(conn, other) == [2]


def test_what_is_given_back_by_a_retry_after_a_later_event_is_delivered(conn: Connection, worker: str) -> None:
    job = running(conn, worker)
    suspend(conn, job, receive("x"))
    conn.execute("select stepwell.send(%s::uuid, 'x', '1')", (job.id,))
    calls.cancel(conn, [job.id])
    other = waiting_for(conn, worker, "later")
    with conn.transaction():
        conn.execute("select stepwell.emit('later', null, '2')")
        assert conn.execute("select stepwell.retry(%s::uuid[], null, true)", ([job.id],)).fetchone() != ([],)
    assert taken(conn, other) == [2]
    [again] = [held for held in calls.claim(conn, worker) if held.id == job.id]
    suspend(conn, again, receive("x"))
    assert taken(conn, again) == [1]


@pytest.mark.parametrize("immediate", [False, True], ids=["at commit", "at once"])
def test_many_events_of_one_transaction_cost_by_their_number(conn: Connection, immediate: bool) -> None:
    def seconds(count: int) -> float:
        began = time.perf_counter()
        with conn.transaction():
            if immediate:
                conn.execute("set constraints all immediate")
            conn.execute("select stepwell.emit('many', n::text) from generate_series(1, %s) n", (count,))
        return time.perf_counter() - began

    few = min(seconds(200) for _ in range(3))
    # Ten times as many; by their square it would be a hundred times as long.
    assert seconds(2_000) < few * 40
