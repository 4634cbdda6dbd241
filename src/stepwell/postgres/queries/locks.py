"""Limit how long a write waits for locks, and find the sessions that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from stepwell.postgres.queries.arrays import bare
from stepwell.postgres.queries.query import WITHIN, Query, milliseconds

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Holder:
    """A session that has locked a job; all None but the job if it is unknown. A prepared transaction has no pid."""

    job_id: str
    task: str
    queue: str
    attempt: int
    pid: int | None
    role: str | None
    application: str | None
    since: datetime | None


def bounded(query: Query[Row], seconds: float) -> Query[Row]:
    """Return a bare `select` of a function with a lock timeout: it fails rather than wait longer for any one lock."""
    # After a `from`, the condition would be a filter, which Postgres evaluates only after the function has returned.
    assert " from " not in query.text, f"bounded needs a select without a from: {query.text}"
    return Query(query.text + WITHIN, (*query.params, milliseconds(seconds)), query.row)


def limit_lock_wait(seconds: float) -> Query[str]:
    return Query("select set_config('lock_timeout', %s, true)", (milliseconds(seconds),))


def lock_holders(job_ids: Sequence[str], *, with_family: bool) -> Query[Holder]:
    return Query(
        "select id::text, task, queue, attempt, pid, role, application, since"
        " from stepwell.lock_holders(%s::uuid[], %s::boolean)",
        (bare(job_ids), with_family),
        Holder,
    )
