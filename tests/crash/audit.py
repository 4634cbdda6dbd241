"""The tables of the ledger, and the audit that reads them: what must hold after any crash whatever."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, LiteralString
from uuid import UUID

import msgspec
import psycopg

_SCHEMA = """
create schema crash;

create table crash.enqueued (job_id uuid primary key);

create table crash.ledger (
  job_id uuid not null,
  epoch integer not null,
  attempt integer not null,
  run uuid not null,
  phase text not null,
  pid integer not null,
  at timestamptz not null default clock_timestamp(),
  primary key (job_id, epoch, run, phase)
);

-- What a handler wrote under the fence (id, epoch), and whether the fence let it.
create table crash.fenced (
  job_id uuid not null,
  epoch integer not null,
  run uuid not null,
  accepted boolean not null,
  at timestamptz not null default clock_timestamp(),
  primary key (job_id, epoch, run)
);

-- What transactional handlers wrote in the transaction of their job. No key: a double must show.
create table crash.effect (job_id uuid not null, epoch integer not null);

-- May be called again with the same entries, when nobody knows whether the first call was committed.
create function crash.record(
  _ids uuid[], _epochs integer[], _attempts integer[], _runs uuid[], _phases text[], _pid integer
) returns void language sql as $$
  with entry as materialized (
    select u.id, u.epoch, u.attempt, u.run, u.phase
    from unnest(_ids, _epochs, _attempts, _runs, _phases) as u (id, epoch, attempt, run, phase)
  ), noted as (
    insert into crash.ledger (job_id, epoch, attempt, run, phase, pid)
    select e.id, e.epoch, e.attempt, e.run, e.phase, _pid from entry e
    on conflict do nothing
  ), held as materialized (
    select j.id, j.epoch from stepwell.job j
    join entry e on e.id = j.id and e.epoch = j.epoch and e.phase = 'end'
    where j.worker_id is not null
    order by j.id
    for share of j
  )
  insert into crash.fenced (job_id, epoch, run, accepted)
  select e.id, e.epoch, e.run, h.id is not null
  from entry e left join held h on h.id = e.id and h.epoch = e.epoch
  where e.phase = 'end'
  on conflict do nothing
$$;
"""

_CHECKS: Mapping[str, LiteralString] = {
    "still live": "select id, state, epoch, worker_id from stepwell.job",
    "enqueued, and not once in history": """
        select e.job_id, count(h.id) from crash.enqueued e left join stepwell.history h on h.id = e.job_id
        group by e.job_id having count(h.id) <> 1""",
    "more than once in history": "select id, count(*) from stepwell.history group by id having count(*) > 1",
    "not a success": """
        select id, task, state, error from stepwell.history where state <> 'succeeded' and task <> 'poison'""",
    "finished, and never ran": """
        select h.id, h.state from stepwell.history h
        where not exists (select from crash.ledger l where l.job_id = h.id and l.phase = 'start')""",
    "two runs under one epoch": """
        select l.job_id, l.epoch from crash.ledger l group by 1, 2 having count(distinct l.run) > 1""",
    "a run later than the one in history": """
        select l.job_id, l.epoch, h.epoch from crash.ledger l join stepwell.history h on h.id = l.job_id
        where l.epoch > h.epoch""",
    "succeeded, and its last run did not end": """
        select h.id, h.epoch from stepwell.history h
        where h.state = 'succeeded' and not exists (
          select from crash.ledger l where l.job_id = h.id and l.epoch = h.epoch and l.phase = 'end')""",
    "the result is not that of the last run": """
        select h.id, h.epoch, h.result from stepwell.history h
        where h.state = 'succeeded' and h.result::text is distinct from h.epoch::text""",
    "a write of a stale epoch was accepted": """
        select f.job_id, f.epoch, l.epoch from crash.fenced f join crash.ledger l on l.job_id = f.job_id
        where f.accepted and l.phase = 'start' and l.epoch > f.epoch and l.at < f.at""",
    "the write of the last run was not accepted": """
        select h.id, h.epoch from stepwell.history h
        where h.state = 'succeeded' and not exists (
          select from crash.fenced f where f.job_id = h.id and f.epoch = h.epoch and f.accepted)""",
    "attempts are not failures plus success": """
        select h.id, h.state, h.epoch, h.attempt, count(f.job_id)
        from stepwell.history h left join stepwell.failure f on f.job_id = h.id
        group by h.id, h.state, h.epoch, h.attempt
        having h.attempt <> count(f.job_id) + (h.state = 'succeeded')::integer or h.epoch < h.attempt""",
    "two failures of one run": "select job_id, epoch from stepwell.failure group by 1, 2 having count(*) > 1",
    "a run that left no trace": """
        select l.job_id, l.epoch, h.epoch from crash.ledger l join stepwell.history h on h.id = l.job_id
        where l.phase = 'start' and (l.epoch < h.epoch or h.state <> 'succeeded')
          and not exists (select from crash.ledger s where s.run = l.run and s.phase = 'stopped')
          and not exists (select from stepwell.failure f where f.job_id = l.job_id and f.epoch = l.epoch)""",
    "a run that died, and its failure is not lease_lost": """
        select l.job_id, l.epoch, f.reason from crash.ledger l
        join stepwell.failure f on f.job_id = l.job_id and f.epoch = l.epoch
        where l.phase = 'start' and f.reason <> 'lease_lost'
          and not exists (select from crash.ledger s where s.run = l.run and s.phase <> 'start')""",
    "a run that was asked to stop, and burned an attempt": """
        select l.job_id, l.epoch, f.reason from crash.ledger l
        join stepwell.failure f on f.job_id = l.job_id and f.epoch = l.epoch
        where l.phase = 'stopped' and f.reason <> 'lease_lost'""",
    "a transactional task whose effect is not there exactly once": """
        select h.id, h.task, h.state, h.epoch, array_agg(e.epoch) from stepwell.history h
        left join crash.effect e on e.job_id = h.id
        where h.task ~ 'paid'
        group by h.id, h.task, h.state, h.epoch
        having count(e.job_id) <> (h.state = 'succeeded')::integer or min(e.epoch) <> h.epoch""",
}


def open_ledger(conn: psycopg.Connection[Any]) -> None:
    """Make the tables."""
    conn.execute(_SCHEMA)


def enqueue(
    conn: psycopg.Connection[Any], task: str, jobs: int, *, queue: str | None = None, **args: object
) -> list[UUID]:
    """Put so many jobs in, all alike."""
    return _enqueue(conn, task, [args] * jobs, queue)


def enqueue_mixed(conn: psycopg.Connection[Any], dice: random.Random, **jobs: int) -> None:
    """Put so many jobs of each task in, all of a few milliseconds."""
    for task, number in jobs.items():
        _enqueue(conn, task, [{"ms": dice.randrange(20)} for _ in range(number)])


def _enqueue(
    conn: psycopg.Connection[Any], task: str, args: Sequence[Mapping[str, object]], queue: str | None = None
) -> list[UUID]:
    encoded = [msgspec.json.encode(each).decode() for each in args]
    # Noted in the same statement: what is in the ledger was acknowledged.
    rows = conn.execute(
        "insert into crash.enqueued select unnest(stepwell.enqueue_many(array[%s::text], %s::text[],"
        " array[%s::text])) returning job_id",
        (task, encoded, queue),
    ).fetchall()
    return [row[0] for row in rows]


def left(conn: psycopg.Connection[Any]) -> int:
    """How many jobs are not finished."""
    return count(conn, "select count(*) from stepwell.job")


def ended(conn: psycopg.Connection[Any]) -> int:
    """How many jobs are finished."""
    return count(conn, "select count(*) from stepwell.history")


def started(conn: psycopg.Connection[Any], epoch: int) -> int:
    """How many jobs have begun their run with this epoch."""
    return count(conn, "select count(*) from crash.ledger where phase = 'start' and epoch = %s", epoch)


def count(conn: psycopg.Connection[Any], query: LiteralString, *params: object) -> int:
    """The one number that a query returns."""
    row = conn.execute(query, params).fetchone()
    assert row is not None
    return int(row[0])


def audit(conn: psycopg.Connection[Any], *, failures: Collection[str] = ()) -> None:
    """Check all that must hold when everything is done. `failures`: for which reasons attempts may have failed."""
    wrong: list[str] = []
    for what, query in _CHECKS.items():
        found = conn.execute(query).fetchall()
        if found:
            wrong.append(f"{what}: {len(found)}, such as {found[:3]}")
    unexpected = conn.execute(
        "select job_id, epoch, reason, type, message from stepwell.failure where reason <> all (%s::text[])",
        (list(failures),),
    ).fetchall()
    if unexpected:
        wrong.append(f"unexpected failures: {len(unexpected)}, such as {unexpected[:3]}")
    assert not wrong, "the audit found\n  " + "\n  ".join(wrong)
