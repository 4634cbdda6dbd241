"""The calls that put, claim and end jobs: one for each SQL function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, LiteralString
from uuid import UUID

import msgspec

from stepwell.job import ClaimedJob, Ended
from stepwell.queries.arrays import Bare, Texts
from stepwell.queries.query import WITHIN, Query, milliseconds, only, same, shared


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
    options: str | None = None
    """Its own policy, as JSON; None: the task's."""


def enqueue(jobs: Sequence[NewJob]) -> Query[list[str]]:
    # As one text: an array of so many would be written, quoted and read element by element.
    return Query(
        "select array_to_string(stepwell.enqueue_many(%s::text[], %s::text[], %s::text[], %s::integer[],"
        " %s::double precision[], %s::timestamptz[], %s::text[], %s::integer[], %s::text[], %s::text[]), ' ')",
        (
            shared([job.task for job in jobs]),
            Texts([job.args for job in jobs]),
            shared([job.queue for job in jobs]),
            shared([job.priority for job in jobs]),
            shared([job.delay for job in jobs]),
            shared([job.run_at for job in jobs]),
            shared(Texts([job.metadata for job in jobs])),
            shared([job.max_attempts for job in jobs]),
            shared([job.owner for job in jobs]),
            shared(Texts([job.options for job in jobs])),
        ),
        _ids,
    )


def _ids(text: str | bytes) -> list[str]:
    # Bytes if the connection says that its text has no encoding (SQL_ASCII).
    return (text.decode() if isinstance(text, bytes) else text).split()


@dataclass(frozen=True, slots=True)
class Position:
    """Where a fetcher stands in a queue: after this job. Nones: at the front."""

    rank: int | None = None
    run_at: int | None = None
    id: str | None = None


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
) -> Query[ClaimedJob]:
    return Query(
        "select id::text, queue, task, args::text, metadata::text, epoch, attempt, rank,"
        " (extract(epoch from run_at) * 1000000)::bigint, (extract(epoch from scheduled_for) * 1000000)::bigint,"
        " parent_id::text, journal, max_attempts, unread, more, options::text"
        " from stepwell.claim(%s::uuid, %s::text[], %s::integer[],"
        " array(select 'epoch'::timestamptz + u.us * interval '1 microsecond'"
        " from unnest(%s::bigint[]) with ordinality as u (us, n) order by u.n),"
        " %s::uuid[], %s::text[], %s::integer, %s::double precision[],"
        " _most_bytes => %s::bigint, _unread => %s::boolean)",
        (
            worker_id,
            list(queues),
            [position.rank for position in positions],
            [position.run_at for position in positions],
            [position.id for position in positions],
            list(tasks),
            limit,
            None if shares is None else list(shares),
            most_bytes,
            unread,
        ),
        ClaimedJob,
    )


def read_claimed(job_id: str, epoch: int) -> Query[tuple[str, str | None, str | None]]:
    return Query(
        "select args::text, metadata::text, journal from stepwell.read_claimed(%s::uuid, %s::integer)",
        (job_id, epoch),
        same,
    )


def ready_queues(patterns: Sequence[str]) -> Query[str]:
    return Query("select name from stepwell.ready_queues(%s::text[]) as r (name)", (list(patterns),), only)


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
            Bare(ids),
            Bare(epochs),
            Texts(results),
            shared(keeps),
            shared(states),
            Texts(errors) if any(errors) else None,
            Bare(parent_ids) if parent_ids else None,
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
            Bare(ids),
            Bare(epochs),
            Bare(reasons),
            Texts(types),
            Texts(messages),
            Texts(tracebacks),
            Bare(delays),
            Bare(max_attempts),
            Bare(keeps),
            Texts(failed_steps) if any(failed_steps) else None,
            Bare(parent_ids) if parent_ids else None,
            Texts(msgspec.json.encode(keys).decode() for keys in besides) if any(besides) else None,
        ),
        only,
    )


def snooze(ids: list[str], epochs: list[int], delays: list[float], *, began: bool) -> Query[list[UUID]]:
    """`began`: whether the handlers of these jobs ran."""
    return Query(
        "select stepwell.snooze(%s::uuid[], %s::integer[], %s::double precision[], %s::boolean)",
        (Bare(ids), Bare(epochs), Bare(delays), began),
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
        (Bare(ids), Bare(epochs), Bare(signatures), Texts(messages), Bare(graces), milliseconds(within)),
        HeldMisfits,
    )


def hand_back_unknown(worker_id: str, ids: list[str], epochs: list[int]) -> Query[list[UUID] | None]:
    return Query(
        "select stepwell.hand_back_unknown(%s::uuid, %s::uuid[], %s::integer[])",
        (worker_id, Bare(ids), Bare(epochs)),
        only,
    )


def report_progress(ids: list[str], epochs: list[int], progress: list[str]) -> Query[None]:
    return Query(
        "select stepwell.report_progress(%s::uuid[], %s::integer[], %s::text[])",
        (Bare(ids), Bare(epochs), Texts(progress)),
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


def promote() -> Query[Promoted]:
    return Query("select promoted, next_due, failed, why from stepwell.promote()", (), Promoted)


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


def retry(ids: Sequence[str], step: str | None = None, *, from_start: bool = False) -> Query[list[UUID]]:
    return Query("select stepwell.retry(%s::uuid[], %s::text, %s::boolean)", (list(ids), step, from_start), only)
