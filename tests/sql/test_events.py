"""Events and signals: delivered once their transaction commits, whatever else happens in it."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.values.step import NewStep
from tests.waiting import until

from . import calls
from .calls import Connection, Held, processor_time
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
    assert fetch(conn, queries.outcomes.suspend([job.id], [job.epoch], [json.dumps(given)]))[0] == []


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


@pytest.mark.parametrize(("trigger", "table"), [("deliver_events", "event"), ("open_rate", "key_setting")])
def test_a_trigger_runs_no_code_of_a_table_that_is_not_theirs(
    conn: Connection, dsn: str, trigger: str, table: str
) -> None:
    """With a cast of the caller's own, to read new would run the caller's code as the owner of the schema."""
    usage = "usage on schema stepwell"
    with role(conn, dsn, usage, "execute on all functions in schema stepwell", "create on schema public") as theirs:
        for statement in (
            "create type public.evil as (a bigint)",
            "create function public.steal(public.evil) returns bigint language plpgsql as"
            " $$begin raise exception 'ran as %', current_user; end$$",
            "create cast (public.evil as bigint) with function public.steal(public.evil) as implicit",
            "create temp table mine (id public.evil, transaction xid8 default pg_current_xact_id())",
        ):
            theirs.execute(sql.SQL(statement))
        theirs.execute(
            sql.SQL(
                "create constraint trigger t after insert on mine deferrable for each row"
                " execute function stepwell.{}()"
            ).format(sql.Identifier(trigger))
        )
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=rf"the trigger of stepwell\.{table}"):
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
        assert fetch(conn, queries.steps.forget_waits(job.id, job.epoch, ["w1"])) == [True]
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


@pytest.mark.slow
@pytest.mark.parametrize("immediate", [False, True], ids=["at commit", "at once"])
def test_many_events_of_one_transaction_cost_by_their_number(conn: Connection, immediate: bool) -> None:
    def seconds(count: int) -> float:
        began = processor_time(conn)
        with conn.transaction():
            if immediate:
                conn.execute("set constraints all immediate")
            conn.execute("select stepwell.emit('many', n::text) from generate_series(1, %s) n", (count,))
        return processor_time(conn) - began

    few = min(seconds(100) for _ in range(3))
    # Ten times as many; by their square it would be a hundred times as long.
    assert seconds(1_000) < few * 40


@contextmanager
def held(dsn: str, name: str, key: str = "", *, shared: bool = False) -> Generator[Connection]:
    """A session that does no more than connect and hold the advisory lock of an event."""
    take = "pg_advisory_lock_shared" if shared else "pg_advisory_lock"
    query = sql.SQL("select {}(1937007984, hashtext(%s || chr(1) || %s))").format(sql.Identifier(take))
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute(query, (name, key))
        yield session
        # Said, because the end of a session is noticed a little later.
        session.execute("select pg_advisory_unlock_all()")


def due_in(conn: Connection, job: Held) -> float | None:
    """In how many seconds a job that waits is looked at again, if ever."""
    query = "select extract(epoch from nullif(run_at, 'infinity') - stepwell.now())::float8 from stepwell.job"
    return calls.one(conn.execute(query + " where id = %s::uuid", (job.id,)))


def deliver_late(conn: Connection) -> int:
    return calls.one(conn.execute("select stepwell.deliver_late()"))


def late(conn: Connection) -> int:
    return calls.one(conn.execute("select count(*) from stepwell.event where late is not null"))


def settle(conn: Connection) -> None:
    """Deliver what is late, until all transactions of the server that could have missed it have ended."""

    def settled() -> bool:
        deliver_late(conn)
        return late(conn) == 0

    until(settled, within=60)


@pytest.mark.parametrize("shared", [False, True])
def test_a_wait_whose_lock_somebody_keeps_is_looked_up_ever_less_often(
    conn: Connection, dsn: str, worker: str, shared: bool
) -> None:
    calls.set_clock(conn, 1_000_000_000)
    with held(dsn, "e", shared=shared):
        job = running(conn, worker)
        suspend(conn, job, wait("e", delay=3600))
        pauses: list[float] = []
        for _ in range(14):
            assert calls.state(conn, job.id) == "waiting"
            pauses.append(due_in(conn, job) or 0)
            calls.set_clock(conn, calls.one(conn.execute("select extract(epoch from run_at) from stepwell.job")))
            promoted, next_due = calls.promote(conn)
            assert promoted == 0
            assert next_due is not None
            assert next_due > 0
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] < 0.1
    assert pauses[-1] == 30
    # Once the lock is free the look is certain, and what remains is the limit of the wait.
    calls.set_clock(conn, calls.one(conn.execute("select extract(epoch from run_at) from stepwell.job")))
    calls.promote(conn)
    assert (due_in(conn, job) or 0) > 3000
    calls.set_clock(conn, 1_000_003_601)
    assert calls.promote(conn)[0] == 1
    assert conn.execute("select timed_out from stepwell.step").fetchall() == [(True,)]


def test_a_wait_without_a_limit_waits_for_its_event_alone_once_its_look_is_certain(
    conn: Connection, dsn: str, worker: str
) -> None:
    calls.set_clock(conn, 1_000_000_000)
    with held(dsn, "e"):
        job = waiting_for(conn, worker, "e")
    assert due_in(conn, job) is not None
    calls.set_clock(conn, 1_000_000_001)
    calls.promote(conn)
    assert due_in(conn, job) is None
    conn.execute("select stepwell.emit('e', null, '1')")
    assert taken(conn, job) == [1]


def test_an_event_on_its_way_while_a_wait_begins_is_found_by_the_next_look(
    conn: Connection, dsn: str, worker: str
) -> None:
    calls.set_clock(conn, 1_000_000_000)
    job = running(conn, worker)
    with psycopg.connect(dsn) as emitter:
        emitter.execute("set constraints all immediate")
        emitter.execute("select stepwell.emit('e', null, '1')")  # it has found nobody
        suspend(conn, job, wait("e"))
        assert calls.state(conn, job.id) == "waiting"
        emitter.commit()
    calls.set_clock(conn, 1_000_000_001)
    calls.promote(conn)
    assert taken(conn, job) == [1]
    assert calls.state(conn, job.id) == "ready"


def test_who_emits_is_not_held_up_by_who_keeps_the_lock_and_reaches_all_who_wait(
    conn: Connection, dsn: str, worker: str
) -> None:
    early = waiting_for(conn, worker, "e")
    with held(dsn, "e"):
        job = waiting_for(conn, worker, "e")
        # Nobody lets the lock go: a call that waited for it would end by this.
        conn.execute("set statement_timeout = '60s'")
        conn.execute("select stepwell.emit('e', null, '1')")
        assert [taken(conn, one) for one in (early, job)] == [[1], [1]]


@pytest.mark.slow
def test_many_events_of_one_transaction_wait_but_once_for_who_keeps_their_locks(conn: Connection, dsn: str) -> None:
    with held(dsn, "e", "1") as session:
        for n in range(2, 21):
            session.execute("select pg_advisory_lock(1937007984, hashtext('e' || chr(1) || %s))", (str(n),))
        began = time.perf_counter()
        conn.execute("select stepwell.emit('e', n::text) from generate_series(1, 20) n")
        assert time.perf_counter() - began < 2.5
    assert late(conn) == 20


def test_an_event_that_was_emitted_without_its_lock_is_delivered_late(conn: Connection, dsn: str, worker: str) -> None:
    """Who waits has the lock, who emits had not: neither has seen the other."""
    job, other = running(conn, worker), running(conn, worker)
    with psycopg.connect(dsn) as emitter, psycopg.connect(dsn) as waiter:
        with held(dsn, "e"):
            emitter.execute("set constraints all immediate")
            emitter.execute("select stepwell.emit('e', null, '1', '0')")
        suspend(conn, job, wait("e"))
        assert due_in(conn, job) is None
        suspend(waiter, other, wait("e"))
        emitter.commit()
        assert taken(conn, job) == []
        # Not pruned before, though it is not to be kept.
        assert fetch(conn, queries.upkeep.prune_events(10)) == [0]
        assert deliver_late(conn) == 1
        assert taken(conn, job) == [1]
        assert calls.state(conn, job.id) == "ready"
        # One that had looked, and is seen to wait only now, gets it as well.
        assert deliver_late(conn) == 1
        assert late(conn) == 1
        waiter.commit()
    assert taken(conn, other) == []
    assert deliver_late(conn) == 1
    assert taken(conn, other) == [1]
    settle(conn)
    assert deliver_late(conn) == 0
    assert fetch(conn, queries.upkeep.prune_events(10)) == [1]


def test_a_late_event_stays_so_while_it_is_looked_at_in_a_transaction_that_began_before(
    conn: Connection, dsn: str
) -> None:
    with psycopg.connect(dsn) as looker:
        looker.execute("select pg_current_xact_id()")
        with held(dsn, "e"):
            conn.execute("select stepwell.emit('e')")
        assert deliver_late(looker) == 1
    assert calls.one(conn.execute("select late::text from stepwell.event")) == "0"


def test_a_late_event_stays_so_while_a_transaction_runs_that_began_before_it_was_seen(
    conn: Connection, dsn: str
) -> None:
    with psycopg.connect(dsn) as other:
        with held(dsn, "e"):
            conn.execute("select stepwell.emit('e')")
        # The highest id so far, so the end of a snapshot is not beyond it.
        other.execute("select pg_current_xact_id()")
        for _ in range(3):
            assert (calls.promote(conn)[0], late(conn)) == (0, 1)
    settle(conn)


@pytest.mark.slow
def test_promote_delivers_what_is_late(conn: Connection, dsn: str, worker: str) -> None:
    """A leader of schema 5 promotes, and does nothing else about it."""
    job, other = waiting_for(conn, worker, "a", "b"), calls.enqueue(conn, delay=60.0)
    with psycopg.connect(dsn) as idle:
        idle.execute("set constraints all immediate")
        idle.execute("select stepwell.emit('a', null, '1')")
        conn.execute("select stepwell.emit('b', null, '2')")
        assert late(conn) == 1
        calls.set_clock(conn, "2100-01-01 00:00+00")
        assert calls.promote(conn)[0] == 1
        assert calls.state(conn, other) == "ready"
        # It does not wait for the lock, which would take 250 ms each time.
        seconds: list[float] = []
        for _ in range(5):
            began = time.perf_counter()
            calls.promote(conn)
            seconds.append(time.perf_counter() - began)
        assert min(seconds) < 0.2
        idle.commit()
    calls.promote(conn)
    assert taken(conn, job) == [1, 2]


def test_late_events_for_a_job_that_stays_locked_hold_up_no_others(conn: Connection, dsn: str, worker: str) -> None:
    locked, job = waiting_for(conn, worker, "a", "b"), waiting_for(conn, worker, "c")
    with psycopg.connect(dsn) as idle, psycopg.connect(dsn) as busy:
        idle.execute("set constraints all immediate")
        idle.execute("select stepwell.emit('a', null, '1')")
        conn.execute("select stepwell.emit('b', null, n::text::json) from generate_series(1, 10) n")
        assert late(conn) == 10
        busy.execute("select from stepwell.job where id = %s::uuid for update", (job.id,))
        conn.execute("select stepwell.emit('c', null, '3')")
        busy.rollback()
        assert late(conn) == 11
        for _ in range(2):
            conn.execute("select stepwell.deliver_late(10)")
        assert taken(conn, job) == [3]
        assert taken(conn, locked) == []


def test_who_emits_waits_for_no_transaction_that_keeps_a_waiting_job_locked(
    conn: Connection, dsn: str, worker: str
) -> None:
    job, other = waiting_for(conn, worker, "a", "b"), waiting_for(conn, worker, "b")
    with psycopg.connect(dsn) as idle:
        idle.execute("set constraints all immediate")
        idle.execute("select stepwell.emit('a', null, '1')")
        # Nobody lets the lock go: a call that waited for it would end by this.
        conn.execute("set statement_timeout = '60s'")
        conn.execute("select stepwell.emit('b', null, '2')")
        assert taken(conn, other) == [2]
        assert (deliver_late(conn), late(conn)) == (1, 1)
        idle.commit()
    assert taken(conn, job) == [1]
    deliver_late(conn)
    assert taken(conn, job) == [1, 2]


def test_events_and_waits_of_many_names_take_no_more_than_some_hundred_locks(conn: Connection, worker: str) -> None:
    count = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
    job = running(conn, worker)
    with conn.transaction():
        suspend(conn, job, *(wait("e", n=n, event_key=f"{n}") for n in range(1, 1_001)))
        assert calls.one(conn.execute(count)) <= 500
    with conn.transaction():
        conn.execute("select stepwell.emit('many', n::text) from generate_series(1, 1000) n")
        conn.execute("set constraints all immediate")
        assert calls.one(conn.execute(count)) <= 500
    assert late(conn) == 500
    assert deliver_late(conn) == 500


def sent(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute("select value, expires_at = 'infinity' from stepwell.event order by id").fetchall()


@pytest.mark.parametrize("swept", [False, True], ids=["before the sweep", "after the sweep"])
def test_what_is_sent_while_a_claim_commits_goes_with_the_job(
    conn: Connection, dsn: str, worker: str, swept: bool
) -> None:
    job_id = calls.enqueue(conn)
    with psycopg.connect(dsn) as claiming:
        [job] = calls.claim(claiming, worker, 1)
        conn.execute("select stepwell.send(%s::uuid, 'x', '1')", (job_id,))
        deliver_late(conn)
        claiming.commit()
    if swept:
        deliver_late(conn)
    assert calls.finish(conn, [job]) == []
    deliver_late(conn)
    assert sent(conn) == []


def test_what_is_sent_while_a_claim_commits_is_there_for_a_retry(conn: Connection, dsn: str, worker: str) -> None:
    job_id = calls.enqueue(conn)
    with psycopg.connect(dsn) as claiming:
        [job] = calls.claim(claiming, worker, 1)
        conn.execute("select stepwell.send(%s::uuid, 'x', '1')", (job_id,))
        claiming.commit()
    calls.fail(conn, [job], delay=None)
    deliver_late(conn)
    assert sent(conn) == [(1, False)]
    assert calls.retry(conn, [job_id]) == [job_id]
    [job] = calls.claim(conn, worker, 1)
    suspend(conn, job, receive("x"))
    assert taken(conn, job) == [1]


def test_what_is_sent_while_a_job_comes_back_does_not_expire(conn: Connection, dsn: str, worker: str) -> None:
    job = running(conn, worker)
    with psycopg.connect(dsn) as sender, psycopg.connect(dsn) as retrying:
        sender.execute("select stepwell.send(%s::uuid, 'x', '1')", (job.id,))
        calls.fail(conn, [job], delay=None)
        assert calls.retry(retrying, [job.id]) == [job.id]
        sender.commit()
        retrying.commit()
    assert sent(conn) == [(1, False)]
    deliver_late(conn)
    assert sent(conn) == [(1, True)]
    [again] = calls.claim(conn, worker, 1)
    calls.finish(conn, [again])
    assert sent(conn) == []


def test_signals_that_were_left_behind_by_their_jobs_are_swept_up(conn: Connection, worker: str) -> None:
    jobs = [running(conn, worker) for _ in range(4)]
    calls.finish(conn, jobs[:1])
    calls.finish(conn, jobs[1:2], keep=0)
    calls.fail(conn, jobs[2:3], delay=None)
    conn.execute("alter table stepwell.event disable trigger event_delivery")
    for n, job in enumerate(jobs):
        conn.execute(
            "insert into stepwell.event (emitted_at, expires_at, job_id, name, key, value)"
            " values (stepwell.now(), 'infinity', %s::uuid, 'x', '', %s::json)",
            (job.id, str(n)),
        )
    conn.execute("alter table stepwell.event enable trigger event_delivery")
    assert fetch(conn, queries.upkeep.prune_signals(100)) == [3]
    assert sent(conn) == [(2, False), (3, True)]
    assert fetch(conn, queries.upkeep.prune_signals(100)) == [0]


LARGE = json.dumps("x" * 200_000)


def emit_large(conn: Connection, keep: str = "30 days") -> None:
    conn.execute("select stepwell.emit('big', null, %s::json, %s::interval)", (LARGE, keep))


def large(conn: Connection, job_id: str, key: str = "w1") -> str | None:
    return fetch(conn, queries.steps.large_value(job_id, key))[0]


def events(conn: Connection) -> int:
    return calls.one(conn.execute("select count(*) from stepwell.event"))


def test_a_large_event_is_stored_once_however_many_take_it(conn: Connection, worker: str) -> None:
    jobs = [waiting_for(conn, worker, "big") for _ in range(5)]
    late_comer = running(conn, worker)
    emit_large(conn)
    suspend(conn, late_comer, wait("big"))
    query = "select count(*), count(value), bool_and(large and not pending) from stepwell.step"
    assert conn.execute(query).fetchone() == (6, 0, True)
    assert conn.execute("select count(*) from stepwell.large_value").fetchone() == (0,)
    claimed = calls.claim(conn, worker)
    assert len(claimed) == 6
    assert [large(conn, job.id) for job in jobs] == [LARGE] * 5
    calls.finish(conn, claimed)
    assert conn.execute("select max(length(steps::text)) < 1000 from stepwell.history").fetchone() == (True,)
    assert [large(conn, job.id) for job in jobs] == [LARGE] * 5
    [(value, is_large)] = conn.execute(
        "select value, large from stepwell.steps where job_id = %s::uuid", (jobs[0].id,)
    ).fetchall()
    assert (value, is_large) == (None, True)


def test_a_claim_does_not_carry_what_a_large_event_or_signal_says(conn: Connection, worker: str) -> None:
    job = running(conn, worker)
    suspend(conn, job, wait("big", n=1), receive("big", n=2))
    with conn.transaction():
        emit_large(conn)
        conn.execute("select stepwell.send(%s::uuid, 'big', %s::json)", (job.id, LARGE))
    claim = "stepwell.claim_jobs(%s::uuid, '{default}', '{null}', '{null}', '{null}', '{work}', 1)"
    assert calls.one(conn.execute(f"select length(c.journal) from {claim} c", (worker,))) < 1000
    assert [large(conn, job.id, key) for key in ("w1", "w2")] == [LARGE, LARGE]


def test_a_large_event_stays_while_steps_or_history_refer_to_it_and_new_waits_do_not_find_it(
    conn: Connection, worker: str
) -> None:
    conn.execute("update stepwell.worker set lease_until = 'infinity'")
    calls.set_clock(conn, "2030-01-01 12:00Z")
    job, other = waiting_for(conn, worker, "big"), running(conn, worker)
    emit_large(conn, keep="1 hour")
    calls.set_clock(conn, "2030-01-01 14:00Z")
    assert fetch(conn, queries.upkeep.prune_events(10)) == [0]
    assert large(conn, job.id) == LARGE
    suspend(conn, other, wait("big", delay=0))
    assert conn.execute("select timed_out from stepwell.step where job_id = %s::uuid", (other.id,)).fetchall() == [
        (True,)
    ]
    [again, _] = sorted(calls.claim(conn, worker), key=lambda held: held.id != job.id)
    calls.fail(conn, [again], delay=None, keep=10 * calls.DAY)
    calls.set_clock(conn, "2030-01-11 11:00Z")
    assert fetch(conn, queries.upkeep.prune_events(10)) == [0]
    assert large(conn, job.id) == LARGE
    # One that is tried again refers to it again.
    assert calls.retry(conn, [job.id]) == [job.id]
    calls.set_clock(conn, "2030-02-01 12:00Z")
    assert fetch(conn, queries.upkeep.prune_events(10)) == [0]
    assert large(conn, job.id) == LARGE
    calls.finish(conn, [held for held in calls.claim(conn, worker) if held.id == job.id], keep=0)
    assert fetch(conn, queries.upkeep.prune_events(10)) == [1]
    assert events(conn) == 0


def test_a_large_event_is_not_pruned_from_under_who_is_taking_it(conn: Connection, dsn: str, worker: str) -> None:
    calls.set_clock(conn, 1_000_000_000)
    emit_large(conn, keep="1 second")
    job = running(conn, worker)
    with psycopg.connect(dsn) as waiter:
        suspend(waiter, job, wait("big"))
        calls.set_clock(conn, 1_000_000_002)
        assert fetch(conn, queries.upkeep.prune_events(10)) == [0]
        waiter.commit()
    assert large(conn, job.id) == LARGE


def test_a_large_signal_is_given_back_whole(conn: Connection, worker: str) -> None:
    job = running(conn, worker)
    suspend(conn, job, receive("big"))
    conn.execute("select stepwell.send(%s::uuid, 'big', %s::json)", (job.id, LARGE))
    assert large(conn, job.id) == LARGE
    [job] = calls.claim(conn, worker)
    assert fetch(conn, queries.steps.forget_waits(job.id, job.epoch, ["w1"])) == [True]
    assert conn.execute("select count(*) from stepwell.large_value").fetchone() == (0,)
    suspend(conn, job, receive("big"))
    assert large(conn, job.id) == LARGE
    [job] = calls.claim(conn, worker)
    calls.fail(conn, [job], delay=None)
    assert large(conn, job.id) == LARGE
    assert conn.execute("select stepwell.retry(%s::uuid[], null, true)", ([job.id],)).fetchone() != ([],)
    assert conn.execute("select count(*) from stepwell.large_value").fetchone() == (0,)
    [job] = calls.claim(conn, worker)
    suspend(conn, job, receive("big"))
    assert large(conn, job.id) == LARGE
    [job] = calls.claim(conn, worker)
    calls.finish(conn, [job], keep=0)
    assert conn.execute("select count(*) from stepwell.large_value").fetchone() == (0,)
    assert events(conn) == 0


def test_a_fork_has_the_large_values_and_the_signals_of_its_origin_for_itself(conn: Connection, worker: str) -> None:
    job = running(conn, worker)
    suspend(conn, job, wait("big", n=1), receive("big", n=2))
    emit_large(conn)
    conn.execute("select stepwell.send(%s::uuid, 'big', %s::json)", (job.id, LARGE))
    [job] = calls.claim(conn, worker)
    fetch(conn, queries.steps.save_steps([queries.steps.Saving(job.id, job.epoch, [NewStep("last", 3, "step", "1")])]))
    fork = str(fetch(conn, queries.jobs.fork(job.id, "last"))[0])
    calls.finish(conn, [job], keep=0)
    assert [large(conn, fork, key) for key in ("w1", "w2")] == [LARGE, LARGE]
    # Both give back what they were sent.
    second = str(fetch(conn, queries.jobs.fork(fork, "w2"))[0])
    both = [held for held in calls.claim(conn, worker) if held.id in (fork, second)]
    for held_job in both:
        assert fetch(conn, queries.steps.forget_waits(held_job.id, held_job.epoch, ["w2"])) == [True]
    assert calls.one(conn.execute("select count(*) from stepwell.event where job_id is not null")) == 1


def test_a_signal_that_two_forks_have_read_is_given_back_to_each(conn: Connection, worker: str) -> None:
    job = running(conn, worker)
    suspend(conn, job, receive("x"))
    conn.execute("select stepwell.send(%s::uuid, 'x', '1')", (job.id,))
    [job] = calls.claim(conn, worker)
    fetch(conn, queries.steps.save_steps([queries.steps.Saving(job.id, job.epoch, [NewStep("last", 2, "step", "1")])]))
    fork = str(fetch(conn, queries.jobs.fork(job.id, "last"))[0])
    [forked] = calls.claim(conn, worker)
    assert forked.id == fork
    for one in (job, forked):
        assert fetch(conn, queries.steps.forget_waits(one.id, one.epoch, ["w1"])) == [True]
    assert sent(conn) == [(1, True), (1, True)]


def test_a_restart_lets_go_of_a_large_event(conn: Connection, worker: str) -> None:
    calls.set_clock(conn, 1_000_000_000)
    job = waiting_for(conn, worker, "big")
    emit_large(conn, keep="1 hour")
    [job] = calls.claim(conn, worker)
    assert fetch(conn, queries.outcomes.restart([job.id], [job.epoch], ["{}"]))[0] == []
    calls.set_clock(conn, 1_000_004_000)
    assert fetch(conn, queries.upkeep.prune_events(10)) == [1]
