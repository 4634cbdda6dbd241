"""Every call to Postgres as a value: its text, its parameters, and what a row becomes.

No I/O here. `db.py` runs them, sync or async. All casts are written out, so that the server never guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, LiteralString, TypeVar
from uuid import UUID

from stepwell.job import ClaimedJob, Ended, Failure, JobInfo

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Query(Generic[Row]):
    """One statement. `row` is called with the columns of each row."""

    text: LiteralString
    params: Sequence[Any]
    row: Callable[..., Row]


def _only(value: Any) -> Any:
    return value


def _same(*columns: Any) -> tuple[Any, ...]:
    return columns


def _shared(values: list[Any]) -> list[Any] | None:
    """An option of a batch: None if nobody has it, one element if it is the same for all, else all of them."""
    first = values[0]
    if values.count(first) == len(values):
        return None if first is None else [first]
    return values


@dataclass(frozen=True, slots=True)
class NewJob:
    """What is put in: one call of a task with its options, args already JSON."""

    task: str
    args: str
    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    run_at: Any = None
    metadata: str | None = None
    max_attempts: int | None = None


def enqueue(jobs: Sequence[NewJob]) -> Query[list[UUID]]:
    return Query(
        "select stepwell.enqueue_many(%s::text[], %s::text[], %s::text[], %s::integer[], %s::double precision[],"
        " %s::timestamptz[], %s::text[], %s::integer[])",
        (
            _shared([job.task for job in jobs]),
            [job.args for job in jobs],
            _shared([job.queue for job in jobs]),
            _shared([job.priority for job in jobs]),
            _shared([job.delay for job in jobs]),
            _shared([job.run_at for job in jobs]),
            _shared([job.metadata for job in jobs]),
            _shared([job.max_attempts for job in jobs]),
        ),
        _only,
    )


@dataclass(frozen=True, slots=True)
class Position:
    """Where a fetcher stands in a queue: after this job. Nones: at the front."""

    rank: int | None = None
    run_at: int | None = None
    id: str | None = None


def claim(
    worker_id: str, queues: Sequence[str], positions: Sequence[Position], tasks: Sequence[str], limit: int
) -> Query[ClaimedJob]:
    return Query(
        "select id::text, queue, task, args::text, metadata::text, epoch, attempt, rank,"
        " (extract(epoch from run_at) * 1000000)::bigint"
        " from stepwell.claim(%s::uuid, %s::text[], %s::integer[],"
        " array(select 'epoch'::timestamptz + u.us * interval '1 microsecond'"
        " from unnest(%s::bigint[]) with ordinality as u (us, n) order by u.n),"
        " %s::uuid[], %s::text[], %s::integer)",
        (
            worker_id,
            list(queues),
            [position.rank for position in positions],
            [position.run_at for position in positions],
            [position.id for position in positions],
            list(tasks),
            limit,
        ),
        ClaimedJob,
    )


def finish(
    ids: list[str],
    epochs: list[int],
    results: list[str | None],
    keeps: list[float],
    states: list[str],
    errors: list[str | None],
) -> Query[list[UUID]]:
    return Query(
        "select stepwell.finish(%s::uuid[], %s::integer[], %s::text[], %s::double precision[], %s::stepwell.state[],"
        " %s::text[])",
        (ids, epochs, results, _shared(keeps), _shared(states), errors if any(errors) else None),
        _only,
    )


def fail(
    ids: list[str],
    epochs: list[int],
    reasons: list[str],
    types: list[str],
    messages: list[str],
    tracebacks: list[str | None],
    delays: list[float | None],
    max_attempts: list[int],
    keeps: list[float],
) -> Query[list[UUID]]:
    return Query(
        "select stepwell.fail(%s::uuid[], %s::integer[], %s::text[], %s::text[], %s::text[], %s::text[],"
        " %s::double precision[], %s::integer[], %s::double precision[])",
        (ids, epochs, reasons, types, messages, tracebacks, delays, max_attempts, keeps),
        _only,
    )


def snooze(ids: list[str], epochs: list[int], delays: list[float]) -> Query[list[UUID]]:
    return Query(
        "select stepwell.snooze(%s::uuid[], %s::integer[], %s::double precision[])",
        (ids, epochs, delays),
        _only,
    )


def hand_back_unknown(worker_id: str, ids: list[str], epochs: list[int]) -> Query[list[UUID] | None]:
    return Query(
        "select stepwell.hand_back_unknown(%s::uuid, %s::uuid[], %s::integer[])", (worker_id, ids, epochs), _only
    )


def report_progress(ids: list[str], epochs: list[int], progress: list[str]) -> Query[None]:
    return Query(
        "select stepwell.report_progress(%s::uuid[], %s::integer[], %s::text[])",
        (ids, epochs, progress),
        _only,
    )


def still_held(job_id: str, epoch: int) -> Query[bool]:
    return Query("select stepwell.still_held(%s::uuid, %s::integer)", (job_id, epoch), _only)


def mark_transaction(mark: str) -> Query[str]:
    """A mark that lasts as long as the transaction: if it is gone, the handler ended the transaction itself."""
    return Query("select set_config('stepwell.transaction', %s, true)", (mark,), _only)


def transaction_mark() -> Query[str | None]:
    return Query("select current_setting('stepwell.transaction', true)", (), _only)


def register_worker(
    host: str, pid: int, version: str, queues: Sequence[str], tasks: str, concurrency: int, lease: float
) -> Query[str]:
    return Query(
        "select stepwell.register_worker(%s::text, %s::integer, %s::text, %s::text[], %s::text, %s::integer,"
        " %s::double precision)::text",
        (host, pid, version, list(queues), tasks, concurrency, lease),
        _only,
    )


def renew(worker_id: str, lease: float, running: int) -> Query[list[str]]:
    return Query(
        "select cancelling::text[] from stepwell.renew(%s::uuid, %s::double precision, %s::integer)",
        (worker_id, lease, running),
        _only,
    )


def unregister_worker(worker_id: str) -> Query[list[UUID]]:
    return Query("select stepwell.unregister_worker(%s::uuid)", (worker_id,), _only)


def rescue() -> Query[list[UUID]]:
    return Query("select stepwell.rescue()", (), _only)


@dataclass(frozen=True, slots=True)
class Promoted:
    """How many jobs became ready, and in how many seconds the next is due."""

    count: int
    next_due: float | None


def promote() -> Query[Promoted]:
    return Query("select promoted, next_due from stepwell.promote()", (), Promoted)


def make_partitions(keeps: Sequence[float]) -> Query[list[str]]:
    return Query("select stepwell.make_partitions(%s::double precision[])", (list(keeps),), _only)


def prune() -> Query[list[str]]:
    return Query("select stepwell.prune()", (), _only)


def notify(channel: str, payload: str) -> Query[None]:
    return Query("select pg_notify(%s, %s)", (channel, payload), _only)


def results(ids: Sequence[str]) -> Query[Ended]:
    return Query(
        "select id::text, state::text, task, result::text, error, type, message, traceback"
        " from stepwell.results(%s::uuid[])",
        (list(ids),),
        Ended,
    )


def hold_waiting_lock() -> Query[None]:
    """Held shared by every process that waits for results: while nobody holds it, nothing is notified."""
    return Query("select pg_advisory_lock_shared(1937007980, 0)", (), _only)


def cancel(ids: Sequence[str], reason: str | None) -> Query[tuple[UUID, str]]:
    return Query("select id, state::text from stepwell.cancel(%s::uuid[], %s::text)", (list(ids), reason), _same)


def retry(ids: Sequence[str]) -> Query[list[UUID]]:
    return Query("select stepwell.retry(%s::uuid[])", (list(ids),), _only)


def pause(queue: str) -> Query[None]:
    return Query("select stepwell.pause(%s::text)", (queue,), _only)


def resume(queue: str) -> Query[None]:
    return Query("select stepwell.resume(%s::text)", (queue,), _only)


_INFO: LiteralString = (
    "select id, state::text, task, queue, priority, args, metadata, result, error, progress, epoch, attempt,"
    " max_attempts, cancelling, worker_id, enqueued_at, run_at, claimed_at, finished_at,"
    # Python has no infinite time: what is kept for ever has no expiry.
    " nullif(expires_at, 'infinity'::timestamptz) from stepwell.jobs"
)


def info(job_id: str) -> Query[JobInfo]:
    return Query(_INFO + " where id = %s::uuid", (job_id,), JobInfo)


def failures(job_id: str) -> Query[Failure]:
    return Query(
        "select attempt, epoch, reason, type, message, traceback, worker_id, claimed_at, failed_at"
        " from stepwell.failures where job_id = %s::uuid order by epoch",
        (job_id,),
        Failure,
    )


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list; None: any. Ages in seconds since they were enqueued."""

    states: tuple[str, ...] | None = None
    queue: str | None = None
    task: str | None = None
    older_than: float | None = None
    newer_than: float | None = None
    metadata: str | None = None


def list_jobs(which: JobFilter, limit: int) -> Query[JobInfo]:
    """The newest first."""
    where, params = _where(which)
    return Query(_INFO + " where " + where + " order by id desc limit %s::integer", (*params, limit), JobInfo)


def count_jobs(which: JobFilter, *, to_retry: bool = False) -> Query[int]:
    where, params = _where(which, to_retry=to_retry)
    return Query("select count(*) from stepwell.jobs where " + where, params, _only)  # noqa: S608


def job_ids(which: JobFilter, before: str | None, limit: int, *, to_retry: bool = False) -> Query[str]:
    """The newest first, older than the one with the id `before`: so a walk in batches meets no job twice."""
    where, params = _where(which, to_retry=to_retry)
    return Query(
        "select id::text from stepwell.jobs where (%s::uuid is null or id < %s::uuid) and "  # noqa: S608
        + where
        + " order by jobs.id desc limit %s::integer",
        (before, before, *params, limit),
        _only,
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
    if to_retry:
        # A scheduled job that was never tried waits because somebody said so.
        conditions.append("(state <> 'scheduled'::stepwell.state or attempt > 0)")
    return " and ".join(conditions), params


def job_states(ids: Sequence[str]) -> Query[tuple[str, str]]:
    return Query("select id::text, state::text from stepwell.jobs where id = any (%s::uuid[])", (list(ids),), _same)


def clock() -> Query[datetime]:
    return Query("select stepwell.now()", (), _only)


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
    )


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A registered worker; `alive`: its lease holds."""

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


def workers() -> Query[WorkerInfo]:
    return Query(
        "select id, host, pid, version, queues, tasks, concurrency, running, started_at, renewed_at, lease_until, alive"
        " from stepwell.workers order by started_at, id",
        (),
        WorkerInfo,
    )


# What follows is for "stepwell doctor". It looks behind the views: at the private tables and at Postgres itself.

LISTEN_FOR_DOCTOR: LiteralString = "listen stepwell_doctor"


def limit_statements(seconds: float) -> Query[str]:
    """No later statement of this session may take longer."""
    return Query("select set_config('statement_timeout', %s::text, false)", (f"{seconds * 1000:.0f}ms",), _only)


@dataclass(frozen=True, slots=True)
class OldestReady:
    """The ready job that has been due for longest, and for how many seconds. One that is not held up by a paused queue
    goes before those that are."""

    id: UUID
    queue: str
    task: str
    age: float
    paused: bool


def oldest_ready() -> Query[OldestReady]:
    return Query(
        "select j.id, j.queue, j.task, extract(epoch from stepwell.now() - j.run_at)::double precision,"
        " q.paused_at is not null from stepwell.job j left join stepwell.queue q on q.name = j.queue"
        " where j.state = 'ready'::stepwell.state order by q.paused_at is not null, j.run_at limit 1",
        (),
        OldestReady,
    )


@dataclass(frozen=True, slots=True)
class DeadRows:
    """Rows of stepwell.job that no one needs any more, by Postgres' own estimate, and when it last took some away."""

    dead: int
    live: int
    last_vacuum: datetime | None
    seconds_since: float | None


def dead_rows() -> Query[DeadRows]:
    return Query(
        "select t.n_dead_tup, t.n_live_tup, v.at, extract(epoch from clock_timestamp() - v.at)::double precision"
        " from pg_catalog.pg_stat_user_tables t, lateral (select greatest(t.last_vacuum, t.last_autovacuum) as at) v"
        " where t.schemaname = 'stepwell' and t.relname = 'job'",
        (),
        DeadRows,
    )


@dataclass(frozen=True, slots=True)
class SnapshotHolder:
    """Who keeps Postgres from taking dead rows away. `xids`: how many transactions began since."""

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
    """The oldest first."""
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
        (),
        SnapshotHolder,
    )


def hidden_sessions() -> Query[int]:
    """How many sessions of this database this role may not look at."""
    return Query(
        "select count(*) from pg_catalog.pg_stat_activity a where a.datname = current_database()"
        " and a.query = '<insufficient privilege>'",
        (),
        _only,
    )


@dataclass(frozen=True, slots=True)
class UncoveredTask:
    """Ready jobs that no live worker runs."""

    queue: str
    task: str
    count: int


def uncovered_tasks() -> Query[UncoveredTask]:
    return Query(
        "select r.queue, r.task, r.count from (select j.queue, j.task, count(*) as count from stepwell.job j"
        " where j.state = 'ready'::stepwell.state group by j.queue, j.task) r"
        " where not exists (select from stepwell.workers w where w.alive and r.queue = any (w.queues)"
        " and r.task = any (w.tasks)) order by r.count desc, r.queue, r.task",
        (),
        UncoveredTask,
    )


@dataclass(frozen=True, slots=True)
class DefaultRows:
    """Rows that found no partition made for their day."""

    history: int
    failure: int


def default_rows() -> Query[DefaultRows]:
    return Query(
        "select (select count(*) from stepwell.history_default), (select count(*) from stepwell.failure_default)",
        (),
        DefaultRows,
    )
