"""Calls to enqueue, cancel, retry and edit jobs, and to read their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from stepwell.postgres.queries.arrays import shared, texts, times
from stepwell.postgres.queries.query import Act, Query, milliseconds, some_jobs
from stepwell.postgres.queries.reads import value_of
from stepwell.values.change import JobSnapshot
from stepwell.values.job import Ended, NewJob
from stepwell.values.step import StepInfo


class Enqueued(msgspec.Struct, frozen=True):
    """The jobs of a batch, in order."""

    ids: list[str]
    inserted: str | None = None
    """A digit for each job: 1 if it is new, 0 if it had the unique key already. None: all are new."""


def enqueue(jobs: Sequence[NewJob]) -> Query[Enqueued]:
    # The ids come as one text: a large array would be written, quoted and read element by element.
    return Query(
        "select array_to_string(stepwell.enqueue_many(%s::text[], %s::text[], %s::text[], %s::integer[],"
        " %s::double precision[], %s::timestamptz[], %s::text[], %s::integer[], %s::text[], %s::text[]), ' ')",
        columns(jobs),
        _enqueued,
    )


def enqueue_unique(jobs: Sequence[NewJob], *, raises: bool) -> Query[Enqueued]:
    """Enqueue jobs of which some have a unique key. Unless it `raises`, a job that is to raise is only not inserted."""
    # Most lists have nothing but keys, and Postgres takes longer for policies that have the keys in them.
    keys = [job.unique.key for job in jobs if job.unique is not None and job.policy is None]
    keys = keys if len(keys) == len(jobs) else None
    return Query(
        "select array_to_string(u.ids, ' '), array_to_string(u.inserted::integer[], '') from stepwell.enqueue_unique("
        "%s::text[], %s::text[], %s::text[], %s::integer[], %s::double precision[], %s::timestamptz[], %s::text[],"
        " %s::integer[], %s::text[], %s::text[], %s::boolean, %s::text[]) u",
        (*_but_policies(jobs), None, raises, texts(keys)) if keys else (*columns(jobs), raises, None),
        _enqueued,
    )


def hold_keys(keys: Sequence[str]) -> Query[Enqueued]:
    """Take unique keys for the jobs of the next queries in the same transaction. Enqueues none itself."""
    return Query("select '', '' from stepwell.hold_keys(%s::text[])", (texts(keys),), _enqueued)


def wait_at_most(seconds: float) -> Query[Enqueued]:
    """Let the next queries in the same transaction wait no longer for a lock. Enqueues none itself."""
    return Query("select '', '' from set_config('lock_timeout', %s, true)", (milliseconds(seconds),), _enqueued)


def key_holder(job_id: str) -> Query[UUID | None]:
    return Query("select stepwell.key_holder(%s::uuid)", (job_id,))


def columns(jobs: Sequence[NewJob]) -> tuple[str | None, ...]:
    """The columns of new jobs, as stepwell.enqueue_many and stepwell.spawn take them."""
    policies = [job.policy for job in jobs]
    if any(job.unique for job in jobs):
        policies = [job.whole_policy for job in jobs]
    return (*_but_policies(jobs), shared(policies, texts))


def _but_policies(jobs: Sequence[NewJob]) -> tuple[str | None, ...]:
    return (
        shared([job.task for job in jobs], texts),
        texts([job.args for job in jobs]),
        shared([job.queue for job in jobs], texts),
        shared([job.priority for job in jobs]),
        shared([job.delay for job in jobs]),
        shared([job.run_at for job in jobs], times),
        shared([job.metadata for job in jobs], texts),
        shared([job.max_attempts for job in jobs]),
        shared([job.owner for job in jobs], texts),
    )


def enqueue_one(job: NewJob) -> Query[UUID]:
    """Enqueue as plain SQL does: a queue or priority of None is the task's own, as registered by live workers."""
    return Query(
        "select stepwell.enqueue(%s::text, %s::json, %s::text, %s::integer,"
        " make_interval(secs => %s::double precision), %s::timestamptz, %s::jsonb, %s::integer, %s::text)",
        (job.task, job.args, job.queue, job.priority, job.delay, job.run_at, job.metadata, job.max_attempts, job.owner),
        act=Act("enqueue", f"task {job.task}" + (f" in queue {job.queue}" if job.queue else "")),
    )


def _enqueued(ids: str | bytes, inserted: str | bytes | None = None) -> Enqueued:
    # psycopg returns bytes if the client encoding is SQL_ASCII.
    return Enqueued(_text(ids).split(), None if inserted is None else _text(inserted))


def _text(text: str | bytes) -> str:
    return text.decode() if isinstance(text, bytes) else text


class CancelledJob(msgspec.Struct, frozen=True):
    """A job that a call cancelled, and the state that it has now: cancelled; running: its worker was notified; ready:
    it will be undone."""

    id: str
    state: str
    task: str
    queue: str
    attempt: int


def cancel(ids: Sequence[str], reason: str | None) -> Query[CancelledJob]:
    return Query(
        "select id::text, state::text, task, queue, attempt from stepwell.cancel(%s::uuid[], %s::text)",
        (list(ids), reason),
        CancelledJob,
        act=Act("cancel", some_jobs(ids)),
    )


def cancel_branches(ids: Sequence[str], reason: str) -> Query[object]:
    """Cancel children without reading what became of them; the answer is to be ignored."""
    return Query("select stepwell.cancel(%s::uuid[], %s::text)", (list(ids), reason))


def retry(
    ids: Sequence[str],
    step: str | None = None,
    *,
    from_start: bool = False,
    input: str | None = None,  # noqa: A002
) -> Query[list[UUID]]:
    return Query(
        "select stepwell.retry(%s::uuid[], %s::text, %s::boolean, %s::text)",
        (list(ids), step, from_start, input),
        act=Act("retry", some_jobs(ids) + (f" at step {step}" if step else " from the start" if from_start else "")),
    )


def run_now(ids: Sequence[str]) -> Query[list[UUID]]:
    return Query("select stepwell.run_now(%s::uuid[])", (list(ids),), act=Act("run", some_jobs(ids)))


def edit_args(ids: Sequence[str], args: Sequence[str]) -> Query[list[UUID]]:
    return Query(
        "select stepwell.edit_args(%s::uuid[], %s::text[])", (list(ids), list(args)), act=Act("edit", some_jobs(ids))
    )


def delete(ids: Sequence[str]) -> Query[list[UUID]]:
    return Query("select stepwell.delete_jobs(%s::uuid[])", (list(ids),), act=Act("delete", some_jobs(ids)))


def move(
    ids: Sequence[str], queue: str | None, priority: int | None, run_at: datetime | str | None
) -> Query[list[UUID]]:
    return Query(
        "select stepwell.move_jobs(%s::uuid[], %s::text, %s::integer, %s::timestamptz)",
        (list(ids), queue, priority, run_at),
        act=Act("move", some_jobs(ids)),
    )


def fork(job_id: str, step: str) -> Query[UUID | None]:
    return Query(
        "select stepwell.fork(%s::uuid, %s::text)", (job_id, step), act=Act("fork", f"job {job_id} at step {step}")
    )


def results(ids: Sequence[str]) -> Query[Ended]:
    return Query(
        "select id::text, state::text, task, result::text, error, type, message, traceback"
        " from stepwell.results(%s::uuid[])",
        (list(ids),),
        Ended,
    )


_steps = msgspec.json.Decoder(list[StepInfo])


def job_changes(ids: Sequence[str], marks: Sequence[int | None]) -> Query[JobSnapshot]:
    return Query(
        "select id::text, mark, state::text, task, attempt, cursor, progress::text, result::text, error, steps::text"
        " from stepwell.job_changes(%s::uuid[], %s::bigint[])",
        (list(ids), list(marks)),
        _snapshot,
    )


def _snapshot(*columns: Any) -> JobSnapshot:
    job_id, mark, state, task, attempt, cursor, progress, result, error, steps = columns
    found = () if steps is None else tuple(replace(step, value=value_of(step.value)) for step in _steps.decode(steps))
    return JobSnapshot(job_id, mark, state, task, attempt, cursor, value_of(progress), result, error, found)


def try_waiting_lock() -> Query[bool]:
    """Try to take, shared, the advisory lock that every process holds while it waits for results. Without a holder,
    workers send no notifications. Any role may hold it exclusively, so no process waits for it; then this is False."""
    return Query("select pg_try_advisory_lock_shared(1937007980, 0)")
