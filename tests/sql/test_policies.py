"""Jobs with a policy of their own: it stays with the job wherever that goes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from stepwell.calendar.schedule import NewSchedule, Overlap
from stepwell.calendar.timing import Interval
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch

from . import calls

Connection = psycopg.Connection[Any]
OWN = '{"timeout": 5, "keep_failed": 60}'


def policy(conn: Connection, job_id: str) -> Any:
    return calls.one(conn.execute("select policy from stepwell.jobs where id = %s::uuid", (job_id,)))


def kept_for(conn: Connection, job_id: str) -> float:
    """For how long it is kept from its end on, in seconds."""
    return calls.one(
        conn.execute(
            "select extract(epoch from expires_at - finished_at)::float8 from stepwell.jobs where id = %s::uuid",
            (job_id,),
        )
    )


def test_a_job_has_the_policy_that_it_was_given_and_a_plain_one_none(conn: Connection) -> None:
    one, other, third = calls.enqueue_many(conn, ["{}"] * 3, policies=[OWN, None, '{"keep": 1}'])
    assert [policy(conn, job) for job in (one, other, third)] == [json.loads(OWN), None, {"keep": 1}]
    assert [policy(conn, job) for job in calls.enqueue_many(conn, ["{}"] * 2, policies=[OWN])] == [json.loads(OWN)] * 2
    assert policy(conn, calls.enqueue(conn)) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["[]"], "a JSON object"),
        (["7"], "a JSON object"),
        (['{"a": "' + 20000 * "x" + '"}'], "at most 20000 bytes"),
        (['{"keep_failed": -1}'], "keep_failed"),
        (['{"keep_failed": "NaN"}'], "keep_failed"),
        (['{"keep_failed": 1e300}'], "keep_failed"),
        (['{"keep_failed": "soon"}'], "double precision"),
        (["{"], "json"),
        ([OWN, OWN, OWN], "one for each item"),
        ([], "one for each item"),
    ],
)
def test_policies_that_rescue_could_not_read_are_refused(conn: Connection, given: list[str], said: str) -> None:
    with pytest.raises(psycopg.DataError, match=said):
        calls.enqueue_many(conn, ["{}"] * 2, policies=given)
    assert calls.one(conn.execute("select count(*) from stepwell.job")) == 0


def test_they_go_to_history_and_come_back_with_a_retry_and_a_fork(conn: Connection) -> None:
    job, other = calls.enqueue_many(conn, ["{}"] * 2, policies=[OWN])
    worker = calls.register_worker(conn)
    first, second = calls.claim(conn, worker)
    calls.fail(conn, [first], delay=None)
    calls.finish(conn, [second])
    assert policy(conn, job) == policy(conn, other) == json.loads(OWN)
    calls.retry(conn, [job])
    assert calls.state(conn, job) == "ready"
    assert policy(conn, job) == json.loads(OWN)
    [again] = calls.claim(conn, worker)
    conn.execute(
        "select stepwell.advance(array[%s]::uuid[], array[%s], '{one}', '{two}', '{1}', '{2}')", (again.id, again.epoch)
    )
    forked = calls.one(conn.execute("select stepwell.fork(%s::uuid, 'two')::text", (job,)))
    assert policy(conn, forked) == json.loads(OWN)


def test_rescue_and_cancel_keep_a_job_as_long_as_it_says_itself(conn: Connection) -> None:
    tasks = {"work": {"max_attempts": 1.0, "keep_failed": 7200.0}}
    dead, plain, waiting, gone = calls.enqueue_many(
        conn, ["{}"] * 4, policies=[OWN, None, OWN, '{"keep_failed": 0}'], delays=[None, None, 60.0, 60.0]
    )
    calls.set_clock(conn, "2030-01-01 00:00+00")
    calls.claim(conn, calls.register_worker(conn, tasks=tasks, lease=10))
    calls.set_clock(conn, "2030-01-01 00:00:20+00")
    calls.register_worker(conn, tasks=tasks)
    assert sorted(calls.rescue(conn)) == [dead, plain]
    calls.cancel(conn, [waiting, gone])
    assert [kept_for(conn, job) for job in (dead, plain, waiting)] == [60, 7200, 60]
    assert calls.state(conn, gone) is None


def test_a_job_that_cannot_go_on_keeps_its_policy(conn: Connection) -> None:
    [job] = calls.enqueue_many(conn, ["{}"], policies=[OWN])
    conn.execute("select stepwell.fail_broken(%s::uuid, 'a constraint')", (job,))
    assert (calls.state(conn, job), policy(conn, job)) == ("failed", json.loads(OWN))


def test_children_have_the_policies_that_they_were_spawned_with(conn: Connection) -> None:
    calls.enqueue(conn)
    [parent] = calls.claim(conn, calls.register_worker(conn))
    children = calls.one(
        conn.execute(
            "select stepwell.spawn(array[%s, %s]::uuid[], array[%s, %s], '{a,b}', '{1,2}', '{child}',"
            " array['{}', '{}'], _policies => %s::text[])::text[]",
            (parent.id, parent.id, parent.epoch, parent.epoch, [OWN, None]),
        )
    )
    assert [policy(conn, child) for child in children] == [json.loads(OWN), None]


def schedule(name: str, overlap: Overlap, *options: Any) -> NewSchedule:
    return NewSchedule(name, "work", "{}", "default", 0, Interval(60.0), overlap, 1, 0.0, *options)


def put(conn: Connection, *schedules: NewSchedule) -> None:
    nexts = [datetime(2030, 1, 1, 0, 1, tzinfo=UTC)] * len(schedules)
    fetch(conn, queries.schedules.put_schedules("shop", schedules, nexts, declared=False))


def fire(conn: Connection, *names: str) -> None:
    conn.execute(
        "select stepwell.tick(array_agg(s.id), array_agg(s.version), array_agg(s.next_tick_at),"
        " array_agg(s.next_tick_at + interval '1 minute'), array_agg(s.id), array_agg(s.next_tick_at))"
        " from stepwell.schedule s where s.name = any (%s)",
        (list(names),),
    )


def test_a_schedule_that_gives_its_jobs_something_else_is_another_version(conn: Connection) -> None:
    versions: list[int] = []
    for given in ((), ('{"k": 1}',), ('{"k": 1}', 3), ('{"k": 1}', 3, OWN), ('{"k": 1}', 3, OWN), ()):
        put(conn, schedule("a", "skip", *given))
        versions.append(calls.one(conn.execute("select version from stepwell.schedule")))
    first = versions[0]
    assert [version - first for version in versions] == [0, 1, 2, 3, 3, 4]


def test_a_schedule_gives_its_jobs_what_it_has(conn: Connection) -> None:
    calls.set_clock(conn, "2030-01-01 00:00+00")
    put(conn, schedule("a", "replace", '{"k": 1}', 3, OWN), schedule("b", "skip"))
    calls.set_clock(conn, "2030-01-01 00:01+00")
    fire(conn, "a", "b")
    calls.set_clock(conn, "2030-01-01 00:02+00")
    fire(conn, "a")  # alone, as it has a run to replace
    conn.execute("select stepwell.trigger_schedule('shop', 'a')")
    found = conn.execute(
        "select s.name, j.metadata, j.max_attempts, j.policy from stepwell.job j"
        " join stepwell.schedule s on s.id = j.schedule_id union all"
        " select 'a', h.metadata, h.max_attempts, h.policy from stepwell.history h order by 1"
    ).fetchall()
    assert found == [("a", {"k": 1}, 3, json.loads(OWN))] * 3 + [("b", None, None, None)]


def test_a_schedule_cannot_have_what_no_job_may_have(conn: Connection) -> None:
    for given in (("[]", None, None), (None, 0, None), (None, None, "[]")):
        with pytest.raises(psycopg.DataError, match="stepwell: "):
            put(conn, schedule("a", "skip", *given))


def test_workers_of_schema_6_go_on(conn: Connection) -> None:
    """They call with the parameters they know, and read the columns they know."""
    conn.execute(
        "select array_to_string(stepwell.enqueue_many(%s::text[], %s::text[], %s::text[], %s::integer[],"
        " %s::double precision[], %s::timestamptz[], %s::text[], %s::integer[], %s::text[]), ' ')",
        (["work"], ["{}"], None, None, None, None, None, None, None),
    )
    calls.enqueue_many(conn, ["{}"], policies=[OWN])
    worker = calls.register_worker(conn)
    claimed = conn.execute(
        "select id::text, queue, task, args::text, metadata::text, epoch, attempt, rank, parent_id::text, journal,"
        " max_attempts, unread, more from stepwell.claim(%s::uuid, '{default}', '{null}', '{null}', '{null}', '{work}',"
        " 10, null::double precision[], _most_bytes => 1000::bigint, _unread => false)",
        (worker,),
    ).fetchall()
    assert len(claimed) == 2
    parent = claimed[0]
    conn.execute(
        "select stepwell.spawn(array[%s]::uuid[], array[%s], '{a}', '{1}', '{work}', array['{}'], null, null, null,"
        " null, null, null, null)",
        (parent[0], parent[5]),
    )
    conn.execute(
        "select stepwell.advance(array[%s]::uuid[], array[%s], '{one}', '{two}', '{1}', '{2}', '{null}', '{null}')",
        (parent[0], parent[5]),
    )
    conn.execute(
        "select stepwell.put_schedules('shop', true, '{a}', '{work}', array['{}'], '{default}', '{0}', '{null}',"
        " '{null}', '{60}', '{skip}', '{1}', '{0}', '{null}', true)"
    )
    assert calls.one(conn.execute("select metadata from stepwell.schedules")) is None


def test_of_two_limits_with_one_key_the_lower_one_counts(conn: Connection) -> None:
    worker = calls.register_worker(conn)
    for limits in (
        '{"key":"two","most":1},{"key":"two","most":5}',
        '{"key":"other","most":5},{"key":"other","most":1}',
    ):
        calls.enqueue_many(conn, ["{}"] * 3, policies=[f'{{"admission":{{"limits":[{limits}]}}}}'] * 3)
    conn.execute("select stepwell.admit_keys('{other,two}')")
    assert len(calls.claim(conn, worker, limit=10)) == 2
