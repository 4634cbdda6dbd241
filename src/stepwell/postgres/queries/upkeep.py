"""Calls of the leader: make due jobs ready, make partitions, and delete what has expired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from stepwell.postgres.queries.query import Query, as_tuple


@dataclass(frozen=True, slots=True)
class Promoted:
    """How many jobs became ready, and in how many seconds the next job is due."""

    count: int
    next_due: float | None
    failed: list[UUID]
    """Jobs that could not be made ready and have failed; and their tasks, queues and attempts."""
    tasks: list[str]
    queues: list[str]
    attempts: list[int]
    why: list[str]
    walked: int
    """How many index entries of other jobs the scans read: dead rows."""


def promote(since: float | None = None) -> Query[Promoted]:
    """`since`: only jobs that became due in the last so many seconds; None: all due jobs."""
    return Query(
        "select promoted, next_due, failed, tasks, queues, attempts, why, walked"
        " from stepwell.promote(_since => %s::double precision)",
        (since,),
        Promoted,
    )


@dataclass(frozen=True, slots=True)
class Admitted:
    """How many blocked jobs became ready, and in how many seconds a rate admits the next."""

    admitted: int
    next_in: float | None


def admit_keys(keys: Sequence[str]) -> Query[Admitted]:
    return Query("select admitted, next_in from stepwell.admit_keys(%s::text[])", (list(keys),), Admitted)


def lines(after: str | None) -> Query[list[str]]:
    """The next keys in whose lines jobs wait."""
    return Query("select stepwell.lines(%s::text)", (after,))


def return_stray_permits() -> Query[int]:
    return Query("select stepwell.return_stray_permits()")


def make_partitions(keeps: Sequence[float]) -> Query[list[str]]:
    return Query("select stepwell.make_partitions(%s::double precision[])", (list(keeps),))


def prune() -> Query[list[str]]:
    return Query("select stepwell.prune()")


def prune_rows(table: Literal["history_default", "failure_default", "large_value"], limit: int) -> Query[int]:
    return Query("select stepwell.prune_rows(%s::text, %s::integer)", (table, limit))


def prune_logs(limit: int) -> Query[int]:
    """Look at the logs of so many jobs, and delete those that nobody keeps. Returns at how many jobs it looked."""
    return Query("select looked from stepwell.prune_logs(%s::integer)", (limit,))


def prune_logs_counted(limit: int) -> Query[tuple[int, int]]:
    """As `prune_logs`. Also returns how many lines it deleted."""
    return Query("select looked, deleted from stepwell.prune_logs(%s::integer)", (limit,), as_tuple)


def prune_events(limit: int) -> Query[int]:
    return Query("select stepwell.prune_events(%s::integer)", (limit,))


def prune_keys(limit: int) -> Query[int]:
    return Query("select stepwell.prune_keys(%s::integer)", (limit,))


def prune_groups(limit: int) -> Query[int]:
    return Query("select stepwell.prune_groups(%s::integer)", (limit,))


def prune_signals(limit: int) -> Query[int]:
    return Query("select stepwell.prune_signals(%s::integer)", (limit,))


def prune_ticks(limit: int) -> Query[int]:
    return Query("select stepwell.prune_ticks(_limit => %s::integer)", (limit,))


def prune_stats(limit: int) -> Query[int]:
    return Query("select stepwell.prune_stats(_limit => %s::integer)", (limit,))


def prune_failures(limit: int) -> Query[int]:
    return Query("select stepwell.prune_failures(_limit => %s::integer)", (limit,))


def prune_audit(limit: int) -> Query[int]:
    return Query("select stepwell.prune_audit(_limit => %s::integer)", (limit,))


def fold_failures(limit: int) -> Query[int]:
    """Add so many counts of failures to their groups."""
    return Query("select stepwell.fold_failures(%s::integer)", (limit,))


def count_enqueued(limit: int) -> Query[int]:
    return Query("select stepwell.count_enqueued(%s::integer)", (limit,))


def sum_stats(limit: int) -> Query[int]:
    return Query("select stepwell.sum_stats(%s::integer)", (limit,))


def prune_bulks(limit: int) -> Query[int]:
    return Query("select stepwell.prune_bulks(_limit => %s::integer)", (limit,))


def admit_stranded() -> Query[int]:
    return Query("select stepwell.admit(null)")
