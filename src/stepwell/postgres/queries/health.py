"""Calls of the doctor. They read private tables and Postgres' own statistics, behind the views."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from stepwell.postgres.queries.query import Query, repeatable_query

LISTEN_FOR_DOCTOR: LiteralString = "listen stepwell_doctor"


def limit_statements(seconds: float) -> Query[str]:
    return Query("select set_config('statement_timeout', %s::text, false)", (f"{seconds * 1000:.0f}ms",))


@dataclass(frozen=True, slots=True)
class OldestReady:
    """The ready job that has been due for longest, and its age in seconds. Paused jobs come after all others."""

    id: UUID
    queue: str
    task: str
    age: float
    paused: str | None
    """The paused target: everything, its queue or its task."""
    served: bool
    """Whether a live worker claims from its queue and knows its task."""


# Whether a live worker runs the jobs of row r: it claims from the queue, knows the task, and runs jobs of the owner.
_SERVED: LiteralString = (
    "exists (select from stepwell.workers w, unnest(w.queues) as q (name) where w.alive"
    " and (q.name = r.queue or (right(q.name, 1) = '*' and starts_with(r.queue, left(q.name, -1))))"
    " and r.task = any (w.tasks) and (r.owner is null or w.named is null or (w.named and w.owner = r.owner)))"
)


def oldest_ready() -> Query[OldestReady]:
    return Query(
        "with paused as materialized (select coalesce(bool_or(c.scope = 'everything'), false) as everything,"  # noqa: S608
        " coalesce(array_agg(c.name) filter (where c.scope = 'queue'), '{}') as queues,"
        " coalesce(array_agg(c.name) filter (where c.scope = 'task'), '{}') as tasks"
        " from stepwell.control c where c.action = 'pause'), ready as (select j.id, j.queue, j.task, j.owner,"
        # The run_at of a job with a fair key is its turn, which may be long before it was enqueued.
        " case when j.fair is null then j.run_at else greatest(j.run_at, j.enqueued_at, j.claimed_at) end as due_at,"
        " case when p.everything then 'everything' when j.queue = any (p.queues) then 'queue'"
        " when j.task = any (p.tasks) then 'task' end as paused"
        " from stepwell.job j, paused p where j.state = 'ready'::stepwell.state)"
        " select r.id, r.queue, r.task, extract(epoch from stepwell.now() - r.due_at)::double precision, r.paused, "
        + _SERVED
        + " from (select * from ready r order by r.paused is not null, r.due_at limit 1) r",
        row=OldestReady,
    )


@dataclass(frozen=True, slots=True)
class DeadRows:
    """Dead rows of stepwell.job, by Postgres' own estimate, and for how long they have not been vacuumed."""

    dead: int
    live: int
    seconds_since: float | None


def dead_rows() -> Query[DeadRows]:
    return Query(
        "select t.n_dead_tup, t.n_live_tup, extract(epoch from clock_timestamp() - v.at)::double precision"
        " from pg_catalog.pg_stat_user_tables t, lateral (select greatest(t.last_vacuum, t.last_autovacuum) as at) v"
        " where t.schemaname = 'stepwell' and t.relname = 'job'",
        row=DeadRows,
    )


@dataclass(frozen=True, slots=True)
class SnapshotHolder:
    """A holder of a snapshot that keeps vacuum from removing dead rows. `xids`: how many transactions began since."""

    kind: str
    """session, prepared transaction or replication slot."""
    pid: int | None
    user: str | None
    name: str | None
    state: str | None
    since: datetime | None
    query_start: datetime | None
    seconds: float | None
    xids: int


def snapshot_holders() -> Query[SnapshotHolder]:
    """The oldest snapshot comes first."""
    return Query(
        "select h.kind, h.pid, h.usename, h.name, h.state, h.since, h.query_start,"
        " extract(epoch from clock_timestamp() - h.since)::double precision, h.xids from ("
        "select 'session'::text as kind, a.pid, a.usename::text, a.application_name as name, a.state,"
        " coalesce(a.xact_start, a.backend_start) as since, a.query_start, age(a.backend_xmin) as xids"
        " from pg_catalog.pg_stat_activity a where a.backend_xmin is not null and a.pid <> pg_backend_pid()"
        " and (a.datname = current_database() or a.backend_type = 'walsender')"
        " union all"
        " select 'prepared transaction'::text, null::integer, p.owner::text, p.gid, 'prepared'::text, p.prepared,"
        " null::timestamptz, age(p.transaction) from pg_catalog.pg_prepared_xacts p"
        " where p.database = current_database()"
        " union all"
        " select 'replication slot'::text, s.active_pid, null::text, s.slot_name::text,"
        " case when s.active then 'active'::text else 'inactive'::text end, null::timestamptz, null::timestamptz,"
        " age(s.xmin) from pg_catalog.pg_replication_slots s where s.xmin is not null"
        ") h order by h.since nulls first, h.xids desc limit 10",
        row=SnapshotHolder,
    )


def hidden_sessions() -> Query[int]:
    return Query(
        "select count(*) from pg_catalog.pg_stat_activity a where a.datname = current_database()"
        " and a.query = '<insufficient privilege>'"
    )


@dataclass(frozen=True, slots=True)
class UncoveredTask:
    """Ready jobs that no live worker runs; `owner` is the app that they belong to."""

    queue: str
    task: str
    owner: str | None
    count: int


def uncovered_tasks() -> Query[UncoveredTask]:
    return Query(
        "select r.queue, r.task, r.owner, r.count from (select j.queue, j.task, j.owner, count(*) as count"  # noqa: S608
        " from stepwell.job j where j.state = 'ready'::stepwell.state group by j.queue, j.task, j.owner) r"
        " where not " + _SERVED + " order by r.count desc, r.queue, r.task, r.owner",
        row=UncoveredTask,
    )


@dataclass(frozen=True, slots=True)
class MisfitTask:
    """Jobs that wait for a worker whose code fits their args: how many, one error, and when the first job fails."""

    task: str
    count: int
    error: str
    until: datetime


def misfit_tasks() -> Query[MisfitTask]:
    return Query(
        "select j.task, count(*), coalesce(min(j.misfit), ''), min(j.misfit_until) from stepwell.job j"
        " where j.misfits is not null and j.state = 'scheduled'::stepwell.state and j.run_at = j.misfit_until"
        " group by j.task order by min(j.misfit_until), j.task",
        row=MisfitTask,
    )


@dataclass(frozen=True, slots=True)
class SharedTask:
    """A task name that live workers of several apps share; `named`: all these apps were given names."""

    task: str
    owners: list[str]
    named: bool


def shared_tasks() -> Query[SharedTask]:
    return Query(
        "select t.name, array_agg(distinct w.owner order by w.owner), bool_and(coalesce(w.named, false))"
        " from stepwell.workers w, unnest(w.tasks) as t (name) where w.alive and w.owner is not null"
        " group by t.name having count(distinct w.owner) > 1 order by t.name",
        row=SharedTask,
    )


@dataclass(frozen=True, slots=True)
class DefaultRows:
    """Rows in the default partitions, because there was no partition for their day."""

    history: int
    failure: int


def default_rows() -> Query[DefaultRows]:
    return Query(
        "select (select count(*) from stepwell.history_default), (select count(*) from stepwell.failure_default)",
        row=DefaultRows,
    )


def notify(channel: str, payload: str) -> Query[None]:
    return Query("select pg_notify(%s, %s)", (channel, payload))


@dataclass(frozen=True, slots=True)
class IndexBuild:
    """An index that a session builds: on which table, and how much of its current phase is done, from 0 to 1."""

    table: str
    done: float | None


def index_build(pid: int) -> Query[IndexBuild]:
    """The index that the session with this process id builds at the moment, if any."""
    return repeatable_query(
        "select p.relid::regclass::text, case"
        " when p.blocks_total > 0 then p.blocks_done::double precision / p.blocks_total"
        " when p.tuples_total > 0 then p.tuples_done::double precision / p.tuples_total end"
        " from pg_stat_progress_create_index p where p.pid = %s::integer",
        (pid,),
        IndexBuild,
    )
