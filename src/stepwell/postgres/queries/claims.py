"""Calls with which a worker claims jobs, finds the first ready ones, and checks that it still holds one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import LiteralString, NamedTuple
from uuid import UUID

from stepwell.postgres.queries.arrays import bare, texts
from stepwell.postgres.queries.query import Query, as_tuple
from stepwell.values.job import ClaimedJob


class Position(NamedTuple):
    """The position of a fetcher in a queue: after this job. By default the front."""

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


def ready_queues(patterns: Sequence[str]) -> Query[str]:
    return Query("select stepwell.ready_queues(%s::text[])", (texts(patterns),))


def read_claimed(job_id: str, epoch: int) -> Query[tuple[str, str | None, str | None]]:
    return Query(
        "select args::text, metadata::text, journal from stepwell.read_claimed(%s::uuid, %s::integer)",
        (job_id, epoch),
        as_tuple,
    )


class FirstReady(NamedTuple):
    """The position of the first ready job of a queue, among the jobs of this rank or of all ranks up to the last."""

    queue: str
    rank: int
    last_rank: int
    run_at: int
    """In microseconds since 1970."""


class EntriesRead(NamedTuple):
    """How many entries of the index of ready jobs the session has read up to here, dead ones included."""

    entries: int


_ENTRIES_READ: LiteralString = (
    "select null, null, null, null,"
    " pg_catalog.pg_stat_get_xact_tuples_returned(pg_catalog.to_regclass('stepwell.job_ready'))"
)


def first_ready(worker_id: str, patterns: Sequence[str], tasks: Sequence[str]) -> Query[FirstReady | EntriesRead]:
    """The first and the last row are `EntriesRead`: their difference is what the query itself has read."""

    def row(queue: str | None, rank: int, last_rank: int, run_at: int, entries: int) -> FirstReady | EntriesRead:
        return EntriesRead(entries) if queue is None else FirstReady(queue, rank, last_rank, run_at)

    return Query(
        _ENTRIES_READ + " union all"  # noqa: S608
        " select queue, rank, last_rank, (extract(epoch from run_at) * 1000000)::bigint, null"
        " from stepwell.first_ready(%s::uuid, %s::text[], %s::text[]) union all " + _ENTRIES_READ,
        (worker_id, texts(patterns), texts(tasks)),
        row,
    )


def hand_back_unknown(worker_id: str, ids: list[str], epochs: list[int]) -> Query[list[UUID] | None]:
    return Query(
        "select stepwell.hand_back_unknown(%s::uuid, %s::uuid[], %s::integer[])", (worker_id, bare(ids), bare(epochs))
    )


def still_held(job_id: str, epoch: int) -> Query[bool]:
    return Query("select stepwell.still_held(%s::uuid, %s::integer)", (job_id, epoch))
