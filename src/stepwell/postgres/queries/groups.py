"""Calls to make groups of jobs, to read how far they are, and to cancel them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from stepwell.postgres.queries.jobs import columns
from stepwell.postgres.queries.query import Act, Query, as_tuple
from stepwell.postgres.queries.reads import value_of
from stepwell.values.group import GroupProgress, GroupResult
from stepwell.values.job import NewJob


def open_group(group_id: str, keep: float, callback: NewJob | None, parameter: str | None) -> Query[UUID | None]:
    """Open a group and return the id of its callback. `parameter` is the argument that gets the summary."""
    return Query(
        "select stepwell.open_group(%s::uuid, %s::double precision, %s::text, %s::text[], %s::text[], %s::text[],"
        " %s::integer[], %s::double precision[], %s::timestamptz[], %s::text[], %s::integer[], %s::text[], %s::text[])",
        (group_id, keep, parameter, *((None,) * 10 if callback is None else columns([callback]))),
    )


def add_members(group_id: str, jobs: Sequence[NewJob]) -> Query[int]:
    return Query(
        "select stepwell.add_members(%s::uuid, %s::text[], %s::text[], %s::text[], %s::integer[],"
        " %s::double precision[], %s::timestamptz[], %s::text[], %s::integer[], %s::text[], %s::text[])",
        (group_id, *columns(jobs)),
    )


def seal_group(group_id: str) -> Query[int]:
    return Query("select stepwell.seal_group(%s::uuid)", (group_id,))


@dataclass(frozen=True, slots=True)
class FoundGroup:
    """A group, and its callback."""

    progress: GroupProgress
    then_id: UUID | None
    then_task: str | None


def group_progress(group_id: str) -> Query[FoundGroup]:
    return Query(
        "select total, succeeded, failed, cancelled, then_id, then_task from stepwell.group_progress(%s::uuid)",
        (group_id,),
        _found,
        repeatable=True,
    )


def _found(total: int, succeeded: int, failed: int, cancelled: int, *then: Any) -> FoundGroup:
    return FoundGroup(GroupProgress(total, succeeded, failed, cancelled), *then)


def group_results(group_id: str, after: str | None, limit: int) -> Query[GroupResult]:
    return Query(
        "select id, state::text, task, result::text, error"
        " from stepwell.group_results(%s::uuid, %s::uuid, %s::integer)",
        (group_id, after, limit),
        _result,
        repeatable=True,
    )


def _result(job_id: UUID, state: Any, task: str, result: str | None, error: str | None) -> GroupResult:
    return GroupResult(job_id, state, task, value_of(result), error)


def cancel_group(group_id: str, reason: str | None, after: str | None) -> Query[tuple[int, UUID | None]]:
    """Cancel the next live members after this id. Also returns the id to continue after (None: at the end)."""
    return Query(
        "select cancelled, looked_to from stepwell.cancel_group(%s::uuid, %s::text, %s::uuid)",
        (group_id, reason, after),
        as_tuple,
        act=Act("cancel", f"members of group {group_id}", lambda rows: rows[0][0]),
    )
