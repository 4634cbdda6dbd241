"""Find jobs by filters. Each query reads a bounded number of jobs and returns where it stopped."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, LiteralString
from uuid import UUID

from stepwell.postgres.queries.query import Query, as_tuple, repeatable_query
from stepwell.postgres.queries.reads import INFO, to_info
from stepwell.values.job import JobInfo

MOST_LOOKED_AT = 50_000
"""How many jobs one query reads, which takes about a tenth of a second."""


@dataclass(frozen=True, slots=True)
class JobMatch:
    """A filter for jobs; None: any. Ages are in seconds since the job was enqueued."""

    states: tuple[str, ...] | None = None
    queue: str | None = None
    task: str | None = None
    older_than: float | None = None
    newer_than: float | None = None
    metadata: str | None = None
    worker_id: UUID | None = None
    owner: str | None = None
    error: str | None = None
    """A part of the error, ignoring case."""
    group_id: UUID | None = None
    failure: UUID | None = None
    """The fingerprint of the last failed attempt."""

    @property
    def text(self) -> str:
        """The filters in a line; the ages are in seconds."""
        named = ((field.name, getattr(self, field.name)) for field in fields(self) if field.name != "states")
        given = {"state": ",".join(self.states)} if self.states else {}
        # It may hold secrets, and this text is kept in the audit.
        given |= {name: "..." if name == "metadata" else str(value) for name, value in named if value is not None}
        return " ".join(f"{name}={value}" for name, value in given.items())


_FIND: LiteralString = (
    "stepwell.find_jobs(_states => %s::stepwell.state[], _task => %s::text, _queue => %s::text, _owner => %s::text,"
    " _worker_id => %s::uuid, _metadata => %s::jsonb, _error => %s::text,"
    " _enqueued_after => stepwell.now() - %s::double precision * interval '1 second',"
    " _enqueued_before => stepwell.now() - %s::double precision * interval '1 second',"
    " _before => %s::uuid, _limit => %s::integer, _look => %s::integer, _to_retry => %s::boolean,"
    " _group => %s::uuid, _failure => %s::uuid) as f"
)


def find_page(which: JobMatch, before: str | None, limit: int) -> Query[tuple[str | None, JobInfo | None]]:
    """Find jobs older than `before`, newest first. Each row has a job and where the search stopped (None: at the end).
    There is at least one row; it has no job if none was found."""
    return repeatable_query(
        "select f.looked_to::text, j.* from "  # noqa: S608
        + _FIND
        + " left join lateral ("
        + INFO
        + " where id = any (f.ids)) as j on true order by j.id desc",
        _params(which, before, limit),
        _to_row,
    )


def find_count(
    which: JobMatch, before: str | None, limit: int, *, to_retry: bool = False
) -> Query[tuple[int, str | None]]:
    """Count the jobs found. Also returns where the search stopped."""
    return repeatable_query(
        "select cardinality(f.ids), f.looked_to::text from " + _FIND,  # noqa: S608
        _params(which, before, limit, to_retry=to_retry),
        as_tuple,
    )


def find_ids(
    which: JobMatch, before: str | None, limit: int, *, to_retry: bool = False
) -> Query[tuple[list[str], str | None]]:
    """Find the ids of jobs, newest first. Also returns where the search stopped."""
    return repeatable_query(
        "select f.ids::text[], f.looked_to::text from " + _FIND,  # noqa: S608
        _params(which, before, limit, to_retry=to_retry),
        as_tuple,
    )


def _params(which: JobMatch, before: str | None, limit: int, *, to_retry: bool = False) -> tuple[Any, ...]:
    return (
        None if which.states is None else list(which.states),
        which.task,
        which.queue,
        which.owner,
        which.worker_id,
        which.metadata,
        which.error,
        which.newer_than,
        which.older_than,
        before,
        limit,
        MOST_LOOKED_AT,
        to_retry,
        which.group_id,
        which.failure,
    )


def _to_row(looked_to: str | None, *columns: Any) -> tuple[str | None, JobInfo | None]:
    return looked_to, None if columns[0] is None else to_info(*columns)
