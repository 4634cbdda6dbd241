"""A dashboard with as much in each table as there can be: the longest names, numbers in the millions, every button.

It has a database of its own and no worker runs, so that it shows the same whatever other tests have done.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
from web.site import served

from stepwell import App
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.outcomes import Sums
from stepwell.values.histogram import BINS, bin_of
from stepwell.web import Dashboard

# The longest that the database takes.
SOLID = ("an_unbroken_name_" * 20)[:200]
SPACED = ("a name of many words " * 20)[:199] + "!"
NAMES = [SOLID, SPACED, "mail"]
ID = "00000000-0000-7000-8000-000000000001"
_MOST_COUNTED = 10_001

_JOBS = """
insert into stepwell.job (
  id, run_at, enqueued_at, claimed_at, worker_id, state, task, queue, args, rank, attempt, max_attempts, progress,
  blocked_by
)
select stepwell.uuid7(), now() + interval '400 days', now() - interval '5 h', now() - interval '4 h',
  case when %(state)s = 'running' then %(id)s::uuid end, %(state)s::stepwell.state, %(name)s, %(name)s,
  json_build_object('order', %(name)s::text), -3200, 12345, 100000,
  case when n %% 2 = 0 then json_build_object('done', 340123, 'total', 1200456, 'message', %(name)s::text) end,
  case when %(state)s = 'blocked' then %(name)s::text end
from generate_series(1, %(many)s) n
"""
# Older than all others.
_MANY = """
insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args, blocked_by)
select overlay(gen_random_uuid()::text placing '00000000' from 1 for 8)::uuid, now() + interval '1 day', now(),
  s::stepwell.state, 'mail', 'mail', '{}', case when s = 'blocked' then 'mail' end
from unnest(array['ready', 'scheduled', 'waiting', 'blocked']) s, generate_series(1, %s)
"""
_ENDED = """
insert into stepwell.history (
  id, expires_at, finished_at, run_at, enqueued_at, claimed_at, epoch, attempt, rank, state, task, queue, args, error
)
select stepwell.uuid7(), now() + interval '9 days', now(), now(), now() - interval '100 days',
  now() - interval '80 days', 1, 1234, -3200, s::stepwell.state, %(name)s, %(name)s,
  json_build_object('order', %(name)s::text), case when s <> 'succeeded' then 'failed: ' || %(name)s end
from unnest(array['succeeded', 'failed', 'cancelled']) s, generate_series(1, 2)
"""
_WORKER = """
insert into stepwell.worker (
  id, host, pid, version, queues, tasks, concurrency, running, started_at, renewed_at, lease_until, owner
)
values (
  %(id)s, %(name)s, 4194304, '1.234.567', array[%(name)s, %(name)s || '*'],
  json_build_object(%(name)s::text, '{}'::json), 1234567, 1234566, now() - interval '400 days',
  now(), now() + interval '1 day', %(name)s
)
"""
_SCHEDULE = """
insert into stepwell.schedule (
  id, owner, name, task, args, queue, rank, cron, tz, overlap, catchup, jitter, declared, declared_at, created_at,
  next_tick_at, last_tick_at, paused_at
)
values (
  %(id)s, %(name)s, %(name)s, %(name)s, json_build_object('order', %(name)s::text), %(name)s, 0,
  '0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19 2,3,4 1-28/3 1,2,3,4,5,6,7,8 mon-fri',
  'America/Argentina/ComodRivadavia',
  'replace', 0, 0, false, now(), now(), now() + interval '300 days', now() - interval '300 days', null
)
"""
_TICKS = """
insert into stepwell.tick (schedule_id, at, handled_at, job_id, skipped, triggered)
select %(id)s, now() - n * interval '1 h', now(), case when n %% 3 > 0 then gen_random_uuid() end,
  case when n %% 3 = 0 then 'overlap' end, n %% 2 = 0
from generate_series(1, 12) n
"""
_FAILURE = """
insert into stepwell.failure_group (
  fingerprint, task, type, frame, first_at, last_at, count, message, job_id, reopened, reopened_at
)
values (
  %(id)s, %(name)s, left('shop.errors.' || %(name)s, 200), %(name)s || ':' || %(name)s, now() - interval '300 days',
  now() - interval '200 days', 1234567890, 'message: ' || %(name)s, gen_random_uuid(), 7, now()
)
"""
_HOURS = """
insert into stepwell.failure_hour (fingerprint, hour, count)
select %(id)s, date_trunc('hour', now()) - n * interval '1 h', 7654321 from generate_series(0, 20) n
"""
_PERMITS = """
insert into stepwell.permit (key, job_id, rate, hold)
select %(name)s, gen_random_uuid(), false, false from generate_series(1, 4)
"""
_AUDIT = """
insert into stepwell.audit (at, who, via, role, act, target, count)
values (now() - interval '100 days', %(name)s, 'dashboard', left(%(name)s, 63), 'queue.pause',
  'queue ' || %(name)s, 7654321)
"""
_BULK = """
insert into stepwell.bulk (
  id, act, filter, options, expected, asked_by, as_of, started_at, next_at, worked_at, looked, done, skipped, failed
)
values (
  %(id)s, 'move', json_build_object('state', 'failed', 'task', %(name)s::text), '{}', 7654321, %(name)s, now(), now(),
  now() + interval '1 day', now(), 7654321, 7654321, 1234567, 2345678
)
"""
_DURABLE = """
insert into stepwell.job (id, run_at, enqueued_at, claimed_at, state, task, queue, args, durable)
values (%(id)s, now() + interval '1 day', now(), now(), 'waiting', %(name)s, %(name)s, '{}', true)
"""
_STEPS = """
insert into stepwell.step (job_id, saved_at, seconds, n, epoch, kind, key, value)
select %(id)s, now() - (20 - n) * interval '1 day', 7654.321, n, 1, case when n %% 3 = 0 then 'sleep' else 'step' end,
  %(name)s || '#' || n, json_build_object('order', %(name)s::text)
from generate_series(1, 8) n
"""
_LEADER = "insert into stepwell.leader (worker_id, since, lease_until) values (%(id)s, now(), now() + interval '1 day')"


def fill(connection: psycopg.Connection[Any]) -> None:
    """Fill each table of the schema that a page shows."""
    histogram = [40 if place % 7 == 0 else 0 for place in range(BINS)]
    histogram[bin_of(123_456)] = 7_654_321
    connection.execute(_MANY, [_MOST_COUNTED])
    for number, name in enumerate(NAMES, 1):
        given = {"name": name, "id": f"{ID[:-1]}{number}"}
        # The first page of jobs has some of each name and state.
        for state in ("ready", "running", "scheduled", "waiting", "blocked"):
            connection.execute(_JOBS, {**given, "state": state, "many": 2})
        for statement in (
            _ENDED,
            _WORKER,
            _SCHEDULE,
            _TICKS,
            _FAILURE,
            _HOURS,
            _PERMITS,
            _AUDIT,
            _BULK,
            _DURABLE,
            _STEPS,
        ):
            connection.execute(statement, given)
        if number == 1:
            connection.execute(_LEADER, given)
        ended = Sums(name, name, 7_654_321, 1_234_567, 1_234_567, seconds=1e9, waits=histogram, runs=histogram)
        fetch(connection, queries.outcomes.add_stats([ended]))
        connection.execute("select stepwell.set_queue(%s, 1000000, 999999, 86400)", (name,))
        connection.execute("select stepwell.set_limit(%s, 1000000), stepwell.set_rate(%s, 999999, 86400)", (name, name))
        connection.execute("select stepwell.save_view(%s, %s, %s)", (name[:100].strip(), f'{{"task": "{name}"}}', name))
    connection.execute("select stepwell.pause(_queue => %s), stepwell.pause(_task => %s)", (SOLID, SPACED))
    connection.execute("update stepwell.schedule set paused_at = now(), next_tick_at = null where name = %s", (SPACED,))


@contextmanager
def full(dsn: str) -> Generator[str]:
    """Fill the database, and serve its dashboard: yields the address."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        fill(connection)
    app = App(dsn, name="full")
    for name in NAMES:

        @app.task(name=name, queue=name, maintainer=name, runbook=f"https://example.com/{SOLID}")
        async def task(order: int, a_parameter_with_a_long_name: str = name) -> None: ...

        _ = task
    with psycopg.connect(dsn, application_name=SOLID[:60]), served(Dashboard(app)) as site:
        yield f"http://127.0.0.1:{site.port}"
    app.close()
