"""Calls with which a worker writes how runs ended, and counts them. Each names the job's epoch, which is the fence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from operator import add
from typing import LiteralString
from uuid import UUID

import msgspec

from stepwell.postgres.queries.arrays import bare, shared, texts
from stepwell.postgres.queries.query import WITHIN, Query, milliseconds
from stepwell.values.histogram import BINS


def finish(
    ids: list[str],
    epochs: list[int],
    results: list[str | None],
    keeps: list[float],
    states: list[str],
    errors: list[str | None],
    parent_ids: Sequence[str] = (),
    by_queue: list[bool] | None = None,
) -> Query[list[UUID]]:
    """`by_queue`: whether the setting of a job's queue comes before its element of `keeps`."""
    return Query(
        "select stepwell.finish(%s::uuid[], %s::integer[], %s::text[], %s::double precision[], %s::stepwell.state[],"
        " %s::text[], %s::uuid[], %s::boolean[])",
        (
            bare(ids),
            bare(epochs),
            texts(results),
            shared(keeps),
            shared(states, texts),
            texts(errors) if any(errors) else None,
            bare(parent_ids) if parent_ids else None,
            shared(by_queue) if by_queue else None,
        ),
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
    by_queue: list[bool] | None = None,
    frames: Sequence[str | None] = (),
    first_steps: Sequence[str | None] = (),
) -> Query[list[UUID]]:
    return Query(
        "select stepwell.fail(%s::uuid[], %s::integer[], %s::text[], %s::text[], %s::text[], %s::text[],"
        " %s::double precision[], %s::integer[], %s::double precision[], %s::text[], %s::uuid[], %s::text[],"
        " %s::boolean[], %s::text[], %s::text[])",
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
            shared(by_queue) if by_queue else None,
            texts(frames) if any(frames) else None,
            texts(first_steps) if any(first_steps) else None,
        ),
    )


def snooze(
    ids: list[str],
    epochs: list[int],
    delays: list[float],
    *,
    began: bool,
    closing: Sequence[str] = (),
    first_steps: Sequence[str | None] = (),
) -> Query[list[UUID]]:
    """`began`: whether the handlers of these jobs ran, and not only the claim. `closing`: the jobs whose rates admit
    nothing until their delay is over."""
    return Query(
        "select stepwell.snooze(%s::uuid[], %s::integer[], %s::double precision[], %s::boolean, %s::uuid[],"
        " %s::text[])",
        (
            bare(ids),
            bare(epochs),
            bare(delays),
            began,
            bare(closing) if closing else None,
            texts(first_steps) if any(first_steps) else None,
        ),
    )


@dataclass(frozen=True, slots=True)
class HeldMisfits:
    """Of jobs whose args do not fit: those that the fence refused, and those whose grace has expired."""

    refused: list[UUID]
    expired: list[UUID]


_HOLD_MISFITS: LiteralString = (
    "select (h.held).refused, (h.held).expired from (select stepwell.hold_misfits(%s::uuid[], %s::integer[],"  # noqa: S608
    " %s::integer[], %s::text[], %s::double precision[]) as held" + WITHIN + ") as h"
)


def hold_misfits(
    ids: list[str],
    epochs: list[int],
    signatures: list[int],
    messages: list[str],
    graces: list[float],
    within: float = 0,
) -> Query[HeldMisfits]:
    """`within`: the lock timeout in seconds; 0: no limit."""
    return Query(
        _HOLD_MISFITS,
        (bare(ids), bare(epochs), bare(signatures), texts(messages), bare(graces), milliseconds(within)),
        HeldMisfits,
    )


def suspend(ids: list[str], epochs: list[int], waits: list[str]) -> Query[list[UUID]]:
    return Query(
        "select stepwell.suspend(%s::uuid[], %s::integer[], %s::text[])", (bare(ids), bare(epochs), texts(waits))
    )


class Move(msgspec.Struct, frozen=True, gc=False):
    """A job that advances to the next step of its chain or machine: an `Advanced` outcome, and the fence of its run."""

    job_id: str
    epoch: int
    left: str | None
    cursor: str
    input: str
    n: int
    delay: float | None = None
    queue: str | None = None
    priority: int | None = None


def advance(moves: Sequence[Move]) -> Query[list[UUID]]:
    return Query(
        "select stepwell.advance(%s::uuid[], %s::integer[], %s::text[], %s::text[], %s::text[], %s::integer[],"
        " %s::double precision[], %s::text[], %s::integer[])",
        (
            bare(move.job_id for move in moves),
            bare(move.epoch for move in moves),
            texts(move.left for move in moves),
            texts(move.cursor for move in moves),
            texts(move.input for move in moves),
            bare(move.n for move in moves),
            bare(move.delay for move in moves),
            texts(move.queue for move in moves),
            bare(move.priority for move in moves),
        ),
    )


def restart(ids: list[str], epochs: list[int], args: list[str]) -> Query[list[UUID]]:
    return Query(
        "select stepwell.restart(%s::uuid[], %s::integer[], %s::text[])", (bare(ids), bare(epochs), texts(args))
    )


def report_progress(ids: list[str], epochs: list[int], progress: list[str]) -> Query[None]:
    return Query(
        "select stepwell.report_progress(%s::uuid[], %s::integer[], %s::text[])",
        (bare(ids), bare(epochs), texts(progress)),
    )


def mark_transaction(mark: str) -> Query[int]:
    """Set a mark that lasts as long as the transaction, and return the pid of the session. If the mark is gone later,
    the handler ended the transaction."""
    return Query("select pg_backend_pid(), set_config('stepwell.transaction', %s, true)", (mark,), _first)


def _first(column: int, _: str) -> int:
    return column


def transaction_mark() -> Query[str | None]:
    return Query("select current_setting('stepwell.transaction', true)")


def _empty() -> list[int]:
    return [0] * BINS


@dataclass(slots=True)
class Sums:
    """How many runs of a task in a queue ended in which way, and their time; in the order of stepwell.add_stats."""

    task: str
    queue: str
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    handed_back: int = 0
    seconds: float = 0.0
    suspended: int = 0
    snoozed: int = 0
    advanced: int = 0
    restarted: int = 0
    undone: int = 0
    refused: int = 0
    waits: list[int] = field(default_factory=_empty)
    """How many runs had been due for how long when they began: a count for each bin of `values/histogram.py`."""
    runs: list[int] = field(default_factory=_empty)
    """How many runs took how long."""

    def add(self, other: Sums) -> None:
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _HISTOGRAMS:
            setattr(self, name, [*map(add, getattr(self, name), getattr(other, name))])


_HISTOGRAMS = ("waits", "runs")
_ADDED = [each.name for each in fields(Sums) if each.name not in ("task", "queue", *_HISTOGRAMS)]


def add_stats(sums: Sequence[Sums]) -> Query[None]:
    return Query(
        "select stepwell.add_stats(%s::text[], %s::text[], %s::integer[], %s::integer[], %s::integer[], %s::integer[],"
        " %s::double precision[], %s::integer[], %s::integer[], %s::integer[], %s::integer[], %s::integer[],"
        " %s::integer[], %s::integer[], %s::integer[])",
        [[getattr(each, column.name) for each in sums] for column in fields(Sums)],
    )
