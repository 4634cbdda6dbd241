"""Reading the views: jobs, their failures, queues and workers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString, cast
from uuid import UUID

from stepwell.job import Failure, JobInfo
from stepwell.queries.query import Query, only, same
from stepwell.step import StepInfo

_INFO: LiteralString = (
    "select id, state::text, task, queue, priority, args::text, metadata::text, result::text, error, progress::text,"
    " epoch, attempt,"
    " max_attempts, cancelling, worker_id, enqueued_at,"
    # Python has no infinite time: what waits without a limit is due at no time, what is kept for ever has no expiry.
    " nullif(run_at, 'infinity'::timestamptz), claimed_at, finished_at,"
    " nullif(expires_at, 'infinity'::timestamptz), schedule_id, scheduled_for, cursor, parent_id,"
    " forked_from, undoing, owner, misfit_until, options::text from stepwell.jobs"
)


def info(job_id: str) -> Query[JobInfo]:
    return Query(_INFO + " where id = %s::uuid", (job_id,), _job_info, repeatable=True)


def failures(job_id: str) -> Query[Failure]:
    return Query(
        "select attempt, epoch, reason, type, message, traceback, worker_id, claimed_at, failed_at"
        " from stepwell.failures where job_id = %s::uuid order by epoch",
        (job_id,),
        Failure,
        repeatable=True,
    )


def last_errors(ids: Sequence[str]) -> Query[tuple[str, str]]:
    """The error of the last failed attempt of each of these jobs."""
    return Query(
        "select u.id::text, f.error from unnest(%s::uuid[]) as u (id) cross join lateral ("
        "select left(f.type || ': ' || f.message, 1000) as error from stepwell.failures f where f.job_id = u.id"
        " order by f.epoch desc limit 1) f",
        (list(ids),),
        same,
        repeatable=True,
    )


def steps(job_id: str) -> Query[StepInfo]:
    return Query(
        "select n, key, kind, pending, timed_out, value::text, large,"
        " case when error ->> 'state' = 'cancelled' then concat_ws(': ', 'cancelled', error ->> 'message')"
        " when error is not null then concat_ws(': ', error ->> 'type', error ->> 'message') end,"
        " coalesce(error ->> 'state' = 'cancelled', false), saved_at,"
        " seconds, nullif(until, 'infinity'::timestamptz), child_id, event, event_key"
        " from stepwell.steps where job_id = %s::uuid order by n, key",
        (job_id,),
        _step_info,
        repeatable=True,
    )


def _job_info(*columns: Any) -> JobInfo:
    id_, state, task, queue, priority, args, metadata, result, error, progress, *rest, options = columns
    return JobInfo(
        id_, state, task, queue, priority, _object(args), None if metadata is None else _object(metadata),
        _value(result), error, _value(progress), *rest,
        options=None if options is None else _object(options),
    )  # fmt: skip


def _step_info(*columns: Any) -> StepInfo:
    n, key, kind, pending, timed_out, value, *rest = columns
    return StepInfo(n, key, kind, pending, timed_out, _value(value), *rest)


def _value(text: str | None) -> Any:
    """A JSON value. One that Python cannot read, as only SQL can put it in, must not hide the others."""
    try:
        return None if text is None else json.loads(text)
    except RecursionError:
        return f"(nested too deep to be shown: {len(text or '')} characters)"
    except ValueError as error:  # a number of more than 4,300 digits
        return f"(cannot be shown: {error})"


def _object(text: str) -> dict[str, Any]:
    value = _value(text)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"": value}


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list; None: any. Ages in seconds since they were enqueued."""

    states: tuple[str, ...] | None = None
    queue: str | None = None
    task: str | None = None
    older_than: float | None = None
    newer_than: float | None = None
    metadata: str | None = None
    worker_id: UUID | None = None
    owner: str | None = None


def list_jobs(which: JobFilter, limit: int) -> Query[JobInfo]:
    """The newest first."""
    where, params = _where(which)
    return Query(
        _INFO + " where " + where + " order by id desc limit %s::integer", (*params, limit), _job_info, repeatable=True
    )


def count_jobs(which: JobFilter, *, to_retry: bool = False) -> Query[int]:
    where, params = _where(which, to_retry=to_retry)
    return Query("select count(*) from stepwell.jobs where " + where, params, only, repeatable=True)  # noqa: S608


def job_ids(which: JobFilter, before: str | None, limit: int, *, to_retry: bool = False) -> Query[str]:
    """The newest first, older than the one with the id `before`: so a walk in batches meets no job twice."""
    where, params = _where(which, to_retry=to_retry)
    return Query(
        "select id::text from stepwell.jobs where (%s::uuid is null or id < %s::uuid) and "  # noqa: S608
        + where
        + " order by jobs.id desc limit %s::integer",
        (before, before, *params, limit),
        only,
        repeatable=True,
    )


def _where(which: JobFilter, *, to_retry: bool = False) -> tuple[LiteralString, list[Any]]:
    conditions: list[LiteralString] = ["true"]
    params: list[Any] = []
    if which.states is not None:
        conditions.append("state = any (%s::stepwell.state[])")
        params.append(list(which.states))
    if which.queue is not None:
        conditions.append("queue = %s::text")
        params.append(which.queue)
    if which.task is not None:
        conditions.append("task = %s::text")
        params.append(which.task)
    if which.older_than is not None:
        conditions.append("enqueued_at <= (select stepwell.now()) - %s::double precision * interval '1 second'")
        params.append(which.older_than)
    if which.newer_than is not None:
        conditions.append("enqueued_at > (select stepwell.now()) - %s::double precision * interval '1 second'")
        params.append(which.newer_than)
    if which.metadata is not None:
        conditions.append("metadata @> %s::jsonb")
        params.append(which.metadata)
    if which.worker_id is not None:
        conditions.append("worker_id = %s::uuid")
        params.append(which.worker_id)
    if which.owner is not None:
        conditions.append("owner = %s::text")
        params.append(which.owner)
    if to_retry:
        # A scheduled job that was never tried waits because somebody said so.
        conditions.append("(state <> 'scheduled'::stepwell.state or attempt > 0 or misfit_until is not null)")
    return " and ".join(conditions), params


def job_states(ids: Sequence[str]) -> Query[tuple[str, str]]:
    return Query(
        "select id::text, state::text from stepwell.jobs where id = any (%s::uuid[])",
        (list(ids),),
        same,
        repeatable=True,
    )


def clock() -> Query[datetime]:
    return Query("select stepwell.now()", (), only, repeatable=True)


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue that holds live jobs or has settings."""

    name: str
    paused_at: datetime | None
    ready: int
    scheduled: int
    running: int
    waiting: int
    blocked: int
    oldest_ready_at: datetime | None


def queues() -> Query[QueueInfo]:
    return Query(
        "select name, paused_at, ready, scheduled, running, waiting, blocked, oldest_ready_at from stepwell.queues"
        " order by name",
        (),
        QueueInfo,
        repeatable=True,
    )


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A registered worker; `alive`: its lease holds; `owner`: the name of its app."""

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
    """Its app was given its name, and it also claims the jobs of that owner. None: it claims those of every owner, as
    versions before did."""


def workers() -> Query[WorkerInfo]:
    return Query(
        "select id, host, pid, version, queues, tasks, concurrency, running, started_at, renewed_at, lease_until,"
        " alive, owner, leads, paused, stopping, named from stepwell.workers order by started_at, id",
        (),
        WorkerInfo,
        repeatable=True,
    )
