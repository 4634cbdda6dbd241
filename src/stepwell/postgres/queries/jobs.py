"""Calls to enqueue, cancel, retry and edit jobs, and to read their results."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from stepwell.postgres.queries.arrays import shared, texts, times
from stepwell.postgres.queries.query import Query, as_tuple
from stepwell.values.job import Ended, NewJob


def enqueue(jobs: Sequence[NewJob]) -> Query[list[str]]:
    # The ids come as one text: a large array would be written, quoted and read element by element.
    return Query(
        "select array_to_string(stepwell.enqueue_many(%s::text[], %s::text[], %s::text[], %s::integer[],"
        " %s::double precision[], %s::timestamptz[], %s::text[], %s::integer[], %s::text[], %s::text[]), ' ')",
        columns(jobs),
        _ids,
    )


def columns(jobs: Sequence[NewJob]) -> tuple[str | None, ...]:
    """The columns of new jobs, as stepwell.enqueue_many and stepwell.spawn take them."""
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
        shared([job.policy for job in jobs], texts),
    )


def enqueue_one(job: NewJob) -> Query[UUID]:
    """Enqueue as plain SQL does: a queue or priority of None is the task's own, as registered by live workers."""
    return Query(
        "select stepwell.enqueue(%s::text, %s::json, %s::text, %s::integer,"
        " make_interval(secs => %s::double precision), %s::timestamptz, %s::jsonb, %s::integer, %s::text)",
        (job.task, job.args, job.queue, job.priority, job.delay, job.run_at, job.metadata, job.max_attempts, job.owner),
    )


def _ids(text: str | bytes) -> list[str]:
    # psycopg returns bytes if the client encoding is SQL_ASCII.
    return (text.decode() if isinstance(text, bytes) else text).split()


def cancel(ids: Sequence[str], reason: str | None) -> Query[tuple[UUID, str]]:
    return Query("select id, state::text from stepwell.cancel(%s::uuid[], %s::text)", (list(ids), reason), as_tuple)


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
        "select stepwell.retry(%s::uuid[], %s::text, %s::boolean, %s::text)", (list(ids), step, from_start, input)
    )


def run_now(ids: Sequence[str]) -> Query[list[UUID]]:
    return Query("select stepwell.run_now(%s::uuid[])", (list(ids),))


def edit_args(ids: Sequence[str], args: Sequence[str]) -> Query[list[UUID]]:
    return Query("select stepwell.edit_args(%s::uuid[], %s::text[])", (list(ids), list(args)))


def fork(job_id: str, step: str) -> Query[UUID | None]:
    return Query("select stepwell.fork(%s::uuid, %s::text)", (job_id, step))


def results(ids: Sequence[str]) -> Query[Ended]:
    return Query(
        "select id::text, state::text, task, result::text, error, type, message, traceback"
        " from stepwell.results(%s::uuid[])",
        (list(ids),),
        Ended,
    )


def try_waiting_lock() -> Query[bool]:
    """Try to take, shared, the advisory lock that every process holds while it waits for results. Without a holder,
    workers send no notifications. Any role may hold it exclusively, so no process waits for it; then this is False."""
    return Query("select pg_try_advisory_lock_shared(1937007980, 0)")
