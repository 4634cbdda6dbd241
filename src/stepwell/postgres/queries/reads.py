"""Reads of the views: jobs, their failures and steps, queues, workers, and the names in use."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, LiteralString, cast
from uuid import UUID

import msgspec

from stepwell.postgres.queries.query import Query, as_tuple, repeatable_query
from stepwell.values.job import Failure, JobInfo
from stepwell.values.step import StepInfo
from stepwell.values.why import Cause, Why

INFO: LiteralString = (
    "select id, state::text, task, queue, priority, args::text, metadata::text, result::text, error, progress::text,"
    " epoch, attempt,"
    " max_attempts, cancelling, worker_id, enqueued_at,"
    # Python has no infinite datetime: None means due at no time, or kept forever.
    " nullif(run_at, 'infinity'::timestamptz), claimed_at, finished_at,"
    " nullif(expires_at, 'infinity'::timestamptz), schedule_id, scheduled_for, cursor, parent_id,"
    " forked_from, undoing, owner, misfit_until, policy::text, group_id from stepwell.jobs"
)


def info(job_id: str) -> Query[JobInfo]:
    return repeatable_query(INFO + " where id = %s::uuid", (job_id,), to_info)


def job_exists(job_id: str) -> Query[bool]:
    return repeatable_query("select exists (select from stepwell.jobs where id = %s::uuid)", (job_id,))


def why(job_id: str) -> Query[Why]:
    return repeatable_query(
        "select cause, subject, next_act, nullif(until, 'infinity'::timestamptz), jobs from stepwell.why(%s::uuid)",
        (job_id,),
        _why,
    )


def failures(job_id: str) -> Query[Failure]:
    return repeatable_query(
        "select attempt, epoch, reason, type, message, traceback, worker_id, claimed_at, failed_at"
        " from stepwell.failures where job_id = %s::uuid order by epoch",
        (job_id,),
        Failure,
    )


def last_errors(ids: Sequence[str]) -> Query[tuple[str, str]]:
    return repeatable_query(
        "select u.id::text, f.error from unnest(%s::uuid[]) as u (id) cross join lateral ("
        "select left(concat_ws(': ', f.type, nullif(f.message, '')), 1000) as error"
        " from stepwell.failures f where f.job_id = u.id order by f.epoch desc limit 1) f",
        (list(ids),),
        as_tuple,
    )


def steps(job_id: str) -> Query[StepInfo]:
    return repeatable_query(
        "select n, key, kind, pending, timed_out, value::text, large,"
        " case when error ->> 'state' = 'cancelled' then concat_ws(': ', 'cancelled', nullif(error ->> 'message', ''))"
        " when error is not null then concat_ws(': ', error ->> 'type', nullif(error ->> 'message', '')) end,"
        " coalesce(error ->> 'state' = 'cancelled', false), saved_at,"
        " seconds, nullif(until, 'infinity'::timestamptz), child_id, event, event_key"
        " from stepwell.steps where job_id = %s::uuid order by n, key",
        (job_id,),
        _step_info,
    )


def to_info(*columns: Any) -> JobInfo:
    id_, state, task, queue, priority, args, metadata, result, error, progress, *rest, policy, group_id = columns
    return JobInfo(
        id_, state, task, queue, priority, _object(args), None if metadata is None else _object(metadata),
        value_of(result), error, value_of(progress), *rest,
        policy=None if policy is None else _object(policy), group_id=group_id,
    )  # fmt: skip


def _step_info(*columns: Any) -> StepInfo:
    n, key, kind, pending, timed_out, value, *rest = columns
    return StepInfo(n, key, kind, pending, timed_out, value_of(value), *rest)


def _why(cause: Cause, subject: str, next_act: str, until: datetime | None, jobs: list[UUID] | None) -> Why:
    return Why(cause, subject, next_act, until, tuple(jobs or ()))


def value_of(text: str | None) -> Any:
    """Decode a JSON value. SQL can store values that Python cannot read; such a value must not hide the others."""
    try:
        return None if text is None else json.loads(text)
    except RecursionError:
        return f"(nested too deep to be shown: {len(text or '')} characters)"
    except ValueError as error:  # a number of more than 4,300 digits
        return f"(cannot be shown: {error})"


def _object(text: str) -> dict[str, Any]:
    value = value_of(text)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"": value}


def task_of(job_id: str) -> Query[str]:
    return repeatable_query("select task from stepwell.jobs where id = %s::uuid", (job_id,))


def task_and_queue(job_id: str) -> Query[tuple[str, str]]:
    return repeatable_query("select task, queue from stepwell.jobs where id = %s::uuid", (job_id,), as_tuple)


def job_states(ids: Sequence[str]) -> Query[tuple[str, str]]:
    return repeatable_query(
        "select id::text, state::text from stepwell.jobs where id = any (%s::uuid[])", (list(ids),), as_tuple
    )


def clock() -> Query[datetime]:
    return repeatable_query("select stepwell.now()")


class Identity(msgspec.Struct, frozen=True):
    """A database: the identifier of its cluster with its oid there, and its name."""

    id: str
    name: str


def identity() -> Query[Identity]:
    # Any role may read both, and neither needs the schema.
    return repeatable_query(
        "select c.system_identifier::text || '/' || d.oid::text, d.datname::text"
        " from pg_catalog.pg_control_system() c, pg_catalog.pg_database d"
        " where d.datname = pg_catalog.current_database()",
        (),
        Identity,
    )


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue that has live jobs or settings."""

    name: str
    paused_at: datetime | None
    ready: int
    scheduled: int
    running: int
    waiting: int
    blocked: int
    oldest_ready_at: datetime | None
    limit: int | None
    """How many of its jobs may run at once; None: no limit is set."""
    rate: float | None
    """How many of its jobs may start per second; None: no rate is set."""
    burst: int | None
    keep: float | None
    """For how many seconds its jobs are kept after they succeeded; None: that is not set."""
    keep_failed: float | None
    """For how many seconds its jobs are kept after they failed or were cancelled; None: that is not set."""


def queues() -> Query[QueueInfo]:
    return repeatable_query(
        'select name, paused_at, ready, scheduled, running, waiting, blocked, oldest_ready_at, "limit", rate, burst,'
        " keep, keep_failed from stepwell.queues order by name",
        row=QueueInfo,
    )


class WorkerInfo(msgspec.Struct, frozen=True):
    """A registered worker; `alive`: its lease has not expired; `owner`: the name of its app."""

    id: UUID
    host: str
    pid: int
    version: str
    queues: list[str]
    tasks: list[str]
    concurrency: int
    running: int
    started_at: datetime
    renewed_at: datetime
    lease_until: datetime
    alive: bool
    owner: str | None
    leads: bool
    paused: bool
    stopping: bool
    named: bool | None
    """Whether its app was given a name, so that it also claims the jobs of that owner. None: it claims jobs of every
    owner, as older versions did."""


class HeldJobs(msgspec.Struct, frozen=True):
    """How many jobs of a task a worker holds: running, or claimed ahead."""

    worker_id: UUID
    task: str
    count: int


MOST_COUNTED = 1000
"""The most jobs that are counted for one worker."""


def held_jobs() -> Query[HeldJobs]:
    """Count the jobs that each worker holds, the most frequent task first."""
    return repeatable_query(
        "select w.id, j.task, count(*) from stepwell.workers w cross join lateral ("
        "select j.task from stepwell.jobs j where j.state = 'running'::stepwell.state and j.worker_id = w.id"
        " limit %s::integer) j group by w.id, j.task order by w.id, count(*) desc, j.task",
        (MOST_COUNTED,),
        HeldJobs,
    )


def workers() -> Query[WorkerInfo]:
    return repeatable_query(
        "select id, host, pid, version, queues, tasks, concurrency, running, started_at, renewed_at, lease_until,"
        " alive, owner, leads, paused, stopping, named from stepwell.workers order by started_at, id",
        row=WorkerInfo,
    )


NameKind = Literal["queue", "task", "owner"]

# How many of the newest jobs are read. A name that only older jobs have, and no worker, schedule or counter, is not
# found: a search for a name that no job has would read all jobs.
_NEWEST = 10_000


class KnownName(msgspec.Struct, frozen=True):
    """A name in use. `served`: a worker has run its jobs, or would; False: its jobs wait."""

    kind: NameKind
    name: str
    served: bool


def known_names(queue: str | None) -> Query[KnownName]:
    """Read the names of live workers, schedules, counters and the newest jobs; and this queue, if it has ready jobs. A
    queue that ends with * is a worker's pattern, which matches every queue with that prefix."""
    return repeatable_query(
        "with newest as materialized ("
        "select j.queue, j.task, j.owner, j.claimed_at is not null as claimed from stepwell.jobs j"
        " order by j.id desc limit %s::integer),"
        " counted as materialized ("
        "select s.queue, s.task from stepwell.stats s order by s.minute desc limit %s::integer)"
        " select n.kind, n.name, bool_or(n.served) from ("
        "select 'queue' as kind, unnest(w.queues) as name, true as served from stepwell.workers w where w.alive"
        " union all select 'task', unnest(w.tasks), true from stepwell.workers w where w.alive"
        " union all select 'owner', w.owner, true from stepwell.workers w where w.alive and w.named is not false"
        " union all select u.kind, u.name, true from stepwell.schedules s"
        " cross join lateral (values ('queue', s.queue), ('task', s.task), ('owner', s.owner)) as u (kind, name)"
        " union all select u.kind, u.name, true from counted c"
        " cross join lateral (values ('queue', c.queue), ('task', c.task)) as u (kind, name)"
        " union all select u.kind, u.name, n.claimed from newest n"
        " cross join lateral (values ('queue', n.queue), ('task', n.task), ('owner', n.owner)) as u (kind, name)"
        " union all (select 'queue', j.queue, false from stepwell.jobs j"
        " where j.state = 'ready'::stepwell.state and j.queue = %s::text limit 1)"
        ") n where n.name is not null group by n.kind, n.name",
        (_NEWEST, _NEWEST, queue),
        KnownName,
    )
