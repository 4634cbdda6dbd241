"""The calls that put, claim and end jobs: one for each SQL function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, LiteralString, NamedTuple
from uuid import UUID

import msgspec

from stepwell.postgres.queries.arrays import bare, shared, texts, times
from stepwell.postgres.queries.query import WITHIN, Query, milliseconds, only, same
from stepwell.values.job import ClaimedJob, Ended


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """What is put in: one call of a task with its options, args already JSON."""

    task: str
    args: str
    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    run_at: Any = None
    metadata: str | None = None
    max_attempts: int | None = None
    owner: str | None = None
    """Only workers of the app of that name run it; None: any that knows the task."""
    policy: str | None = None
    """Its own policy, as JSON; None: the task's."""


def enqueue(jobs: Sequence[NewJob]) -> Query[list[str]]:
    # As one text: an array of so many would be written, quoted and read element by element.
    return Query(
        "select array_to_string(stepwell.enqueue_many(%s::text[], %s::text[], %s::text[], %s::integer[],"
        " %s::double precision[], %s::timestamptz[], %s::text[], %s::integer[], %s::text[], %s::text[]), ' ')",
        (
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
        ),
        _ids,
    )


def enqueue_one(job: NewJob) -> Query[UUID]:
    """As plain SQL does it: a queue or priority that is None is the task's own, as far as live workers know it."""
    return Query(
        "select stepwell.enqueue(%s::text, %s::json, %s::text, %s::integer,"
        " make_interval(secs => %s::double precision), %s::timestamptz, %s::jsonb, %s::integer, %s::text)",
        (job.task, job.args, job.queue, job.priority, job.delay, job.run_at, job.metadata, job.max_attempts, job.owner),
        only,
    )


def _ids(text: str | bytes) -> list[str]:
    # Bytes if the connection says that its text has no encoding (SQL_ASCII).
    return (text.decode() if isinstance(text, bytes) else text).split()


class Position(NamedTuple):
    """Where a fetcher stands in a queue: after this job. By default at the front."""

    rank: int = -32768
    run_at: float = -math.inf
    """In microseconds since 1970."""
    id: str = ""


def claim(
    worker_id: str,
    queues: Sequence[str],
    positions: Sequence[Position],
    tasks: Sequence[str],
    limit: int,
    shares: Sequence[float] | None = None,
    *,
    most_bytes: int = 64 * 1024 * 1024,
    unread: bool = False,
    last_ranks: Sequence[int] | None = None,
) -> Query[ClaimedJob]:
    return Query(
        "select id, queue, task, args, metadata, epoch, attempt, rank, run_at, scheduled_for, parent_id, journal,"
        " max_attempts, unread, more, policy"
        " from stepwell.claim_jobs(%s::uuid, %s::text[], %s::integer[], %s::bigint[], %s::uuid[], %s::text[],"
        " %s::integer, %s::double precision[], %s::bigint, %s::boolean, %s::integer[])",
        (
            worker_id,
            texts(queues),
            bare(position.rank for position in positions),
            bare(None if math.isinf(position.run_at) else int(position.run_at) for position in positions),
            bare(position.id or None for position in positions),
            texts(tasks),
            limit,
            None if shares is None else bare(shares),
            most_bytes,
            unread,
            None if last_ranks is None else bare(last_ranks),
        ),
        ClaimedJob,
    )


def read_claimed(job_id: str, epoch: int) -> Query[tuple[str, str | None, str | None]]:
    return Query(
        "select args::text, metadata::text, journal from stepwell.read_claimed(%s::uuid, %s::integer)",
        (job_id, epoch),
        same,
    )


class FirstReady(NamedTuple):
    """Where the first ready job of a queue stands, of this rank or of all ranks up to the last."""

    queue: str
    rank: int
    last_rank: int
    run_at: int
    """In microseconds since 1970."""


def first_ready(worker_id: str, patterns: Sequence[str], tasks: Sequence[str]) -> Query[FirstReady]:
    return Query(
        "select queue, rank, last_rank, (extract(epoch from run_at) * 1000000)::bigint"
        " from stepwell.first_ready(%s::uuid, %s::text[], %s::text[])",
        (worker_id, texts(patterns), texts(tasks)),
        FirstReady,
    )


def finish(
    ids: list[str],
    epochs: list[int],
    results: list[str | None],
    keeps: list[float],
    states: list[str],
    errors: list[str | None],
    parent_ids: Sequence[str] = (),
) -> Query[list[UUID]]:
    return Query(
        "select stepwell.finish(%s::uuid[], %s::integer[], %s::text[], %s::double precision[], %s::stepwell.state[],"
        " %s::text[], %s::uuid[])",
        (
            bare(ids),
            bare(epochs),
            texts(results),
            shared(keeps),
            shared(states, texts),
            texts(errors) if any(errors) else None,
            bare(parent_ids) if parent_ids else None,
        ),
        only,
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
    failed_steps: Sequence[str | None] = (),
    parent_ids: Sequence[str] = (),
    besides: Sequence[Sequence[str]] = (),
) -> Query[list[UUID]]:
    return Query(
        "select stepwell.fail(%s::uuid[], %s::integer[], %s::text[], %s::text[], %s::text[], %s::text[],"
        " %s::double precision[], %s::integer[], %s::double precision[], %s::text[], %s::uuid[], %s::text[])",
        (
            bare(ids),
            bare(epochs),
            bare(reasons),
            texts(types),
            texts(messages),
            texts(tracebacks),
            bare(delays),
            bare(max_attempts),
            bare(keeps),
            texts(failed_steps) if any(failed_steps) else None,
            bare(parent_ids) if parent_ids else None,
            texts(msgspec.json.encode(keys).decode() for keys in besides) if any(besides) else None,
        ),
        only,
    )


def snooze(ids: list[str], epochs: list[int], delays: list[float], *, began: bool) -> Query[list[UUID]]:
    """`began`: whether the handlers of these jobs ran."""
    return Query(
        "select stepwell.snooze(%s::uuid[], %s::integer[], %s::double precision[], %s::boolean)",
        (bare(ids), bare(epochs), bare(delays), began),
        only,
    )


@dataclass(frozen=True, slots=True)
class HeldMisfits:
    """Of jobs whose args did not fit, those that the fence refused and those that have waited long enough."""

    refused: list[UUID]
    expired: list[UUID]


_MISFITS: LiteralString = (
    "stepwell.hold_misfits(%s::uuid[], %s::integer[], %s::integer[], %s::text[], %s::double precision[])"
)
_HOLD_MISFITS: LiteralString = (
    "select (h.held).refused, (h.held).expired from (select " + _MISFITS + " as held" + WITHIN + ") as h"  # noqa: S608
)


def hold_misfits(
    ids: list[str],
    epochs: list[int],
    signatures: list[int],
    messages: list[str],
    graces: list[float],
    within: float = 0,
) -> Query[HeldMisfits]:
    """`within`: fail rather than wait longer than so many seconds for any one lock; 0 is no limit."""
    return Query(
        _HOLD_MISFITS,
        (bare(ids), bare(epochs), bare(signatures), texts(messages), bare(graces), milliseconds(within)),
        HeldMisfits,
    )


def hand_back_unknown(worker_id: str, ids: list[str], epochs: list[int]) -> Query[list[UUID] | None]:
    return Query(
        "select stepwell.hand_back_unknown(%s::uuid, %s::uuid[], %s::integer[])",
        (worker_id, bare(ids), bare(epochs)),
        only,
    )


def report_progress(ids: list[str], epochs: list[int], progress: list[str]) -> Query[None]:
    return Query(
        "select stepwell.report_progress(%s::uuid[], %s::integer[], %s::text[])",
        (bare(ids), bare(epochs), texts(progress)),
        only,
    )


def still_held(job_id: str, epoch: int) -> Query[bool]:
    return Query("select stepwell.still_held(%s::uuid, %s::integer)", (job_id, epoch), only)


def mark_transaction(mark: str) -> Query[str]:
    """A mark that lasts as long as the transaction: if it is gone, the handler ended the transaction itself."""
    return Query("select set_config('stepwell.transaction', %s, true)", (mark,), only)


def transaction_mark() -> Query[str | None]:
    return Query("select current_setting('stepwell.transaction', true)", (), only)


@dataclass(frozen=True, slots=True)
class Promoted:
    """How many jobs became ready, and in how many seconds the next is due."""

    count: int
    next_due: float | None
    failed: list[UUID]
    """Those that could not be made ready, and have failed."""
    why: list[str]
    walk_seconds: float
    """How long the database walked along the index of due jobs, dead rows included."""


def promote(since: float | None = None) -> Query[Promoted]:
    """`since`: only jobs that became due in the last so many seconds; None: all."""
    return Query(
        "select promoted, next_due, failed, why, walk_seconds from stepwell.promote(_since => %s::double precision)",
        (since,),
        Promoted,
    )


def make_partitions(keeps: Sequence[float]) -> Query[list[str]]:
    return Query("select stepwell.make_partitions(%s::double precision[])", (list(keeps),), only)


def prune() -> Query[list[str]]:
    return Query("select stepwell.prune()", (), only)


def prune_rows(table: Literal["history_default", "failure_default", "large_value"], limit: int) -> Query[int]:
    return Query("select stepwell.prune_rows(%s::text, %s::integer)", (table, limit), only)


def notify(channel: str, payload: str) -> Query[None]:
    return Query("select pg_notify(%s, %s)", (channel, payload), only)


def notify_unless_full(channel: str) -> Query[None]:
    """No row: the queue of notifications is so full that stepwell.notify sends nothing either."""
    return Query("select pg_notify(%s, '') where pg_notification_queue_usage() < 0.5", (channel,), only)


def results(ids: Sequence[str]) -> Query[Ended]:
    return Query(
        "select id::text, state::text, task, result::text, error, type, message, traceback"
        " from stepwell.results(%s::uuid[])",
        (list(ids),),
        Ended,
    )


def try_waiting_lock() -> Query[bool]:
    """Try to hold the lock that every process holds, shared, while it waits for results; without a holder nobody
    notifies. Anybody may hold it exclusively, so nobody waits for it. False: somebody does so at this moment."""
    return Query("select pg_try_advisory_lock_shared(1937007980, 0)", (), only)


def cancel(ids: Sequence[str], reason: str | None) -> Query[tuple[UUID, str]]:
    return Query("select id, state::text from stepwell.cancel(%s::uuid[], %s::text)", (list(ids), reason), same)


def cancel_branches(ids: Sequence[str], reason: str) -> Query[object]:
    """The same, for children whose fate nobody asks about; what is answered means nothing."""
    return Query("select stepwell.cancel(%s::uuid[], %s::text)", (list(ids), reason), only)


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
        only,
    )


def run_now(ids: Sequence[str]) -> Query[list[UUID]]:
    return Query("select stepwell.run_now(%s::uuid[])", (list(ids),), only)


def edit_args(ids: Sequence[str], args: Sequence[str]) -> Query[list[UUID]]:
    return Query("select stepwell.edit_args(%s::uuid[], %s::text[])", (list(ids), list(args)), only)
