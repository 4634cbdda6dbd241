"""Jobs: search, one job, its steps and its children."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from stepwell.postgres.queries.query import Query, repeatable_query
from stepwell.web.reads.call import loaded


@dataclass(frozen=True, slots=True)
class Search:
    """Filters for jobs; None: any. A job must match all."""

    state: str | None = None
    queue: str | None = None
    task: str | None = None
    owner: str | None = None
    worker: UUID | None = None
    metadata: str | None = None
    """A JSON object that the metadata must contain."""
    argument: str | None = None
    value: str | None = None
    """The value of that argument as text; without an argument, a part of the args."""
    error: str | None = None
    after: datetime | None = None
    until: datetime | None = None
    failure: UUID | None = None
    """The fingerprint of the last failed attempt."""


def search(
    which: Search,
    before: UUID | None,
    limit: int,
    milliseconds: int,
    *,
    oldest_first: bool,
    ids_only: bool = False,
    sort: str | None = None,
    offset: int = 0,
) -> Query[dict[str, Any]]:
    """Jobs before another one in the order, or their ids, and how far the search looked. `sort`: another order than by
    age, in which the page begins after `offset` jobs."""
    return repeatable_query(
        "select stepwell.dashboard_jobs(_state => %s::stepwell.state, _queue => %s::text, _task => %s::text,"
        " _owner => %s::text, _worker_id => %s::uuid, _metadata => %s::jsonb, _argument => %s::text,"
        " _value => %s::text, _error => %s::text, _enqueued_after => %s::timestamptz,"
        " _enqueued_before => %s::timestamptz, _before => %s::uuid, _oldest_first => %s::boolean,"
        " _limit => %s::integer, _milliseconds => %s::integer, _failure => %s::uuid, _ids_only => %s::boolean,"
        " _sort => %s::text, _offset => %s::integer)::text",
        (
            which.state,
            which.queue,
            which.task,
            which.owner,
            which.worker,
            which.metadata,
            which.argument,
            which.value,
            which.error,
            which.after,
            which.until,
            before,
            oldest_first,
            limit,
            milliseconds,
            which.failure,
            ids_only,
            sort,
            offset,
        ),
        loaded,
    )


def saved_views() -> Query[dict[str, Any]]:
    return repeatable_query("select stepwell.dashboard_views()::text", (), loaded)


def names(queue: str | None) -> Query[dict[str, Any]]:
    """The names of queues and tasks, and the number of jobs in each state, of one queue or of all."""
    return repeatable_query("select stepwell.dashboard_names(%s::text)::text", (queue,), loaded)


def job(job_id: UUID) -> Query[dict[str, Any] | None]:
    return repeatable_query("select stepwell.dashboard_job(%s::uuid)::text", (job_id,), loaded)


def steps(job_id: UUID, offset: int, limit: int) -> Query[list[dict[str, Any]]]:
    return repeatable_query(
        "select stepwell.dashboard_steps(%s::uuid, %s::integer, %s::integer)::text", (job_id, offset, limit), loaded
    )


def children(job_id: UUID, offset: int, limit: int) -> Query[list[dict[str, Any]]]:
    return repeatable_query(
        "select stepwell.dashboard_children(%s::uuid, %s::integer, %s::integer)::text", (job_id, offset, limit), loaded
    )
