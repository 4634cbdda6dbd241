"""Calls that read groups of failures, and set their states."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from stepwell.postgres.queries.query import Act, Query, repeatable_query
from stepwell.values.failure_info import FailureInfo, FailureState

_ACTS = {"open": "reopen", "resolved": "resolve", "ignored": "ignore"}


def list_failures(
    state: FailureState | None, task: str | None, sort: str, limit: int, failure: UUID | None = None
) -> Query[FailureInfo]:
    """`failure`: only this group."""
    return repeatable_query(
        "select fingerprint, task, type, frame, state, count, first_at, last_at, state_at, reopened, reopened_at,"
        " message, job_id from stepwell.list_failures(_state => %s::text, _task => %s::text, _sort => %s::text,"
        " _limit => %s::integer, _fingerprint => %s::uuid)",
        (state, task, sort, limit, failure),
        FailureInfo,
    )


def set_failures(failures: Sequence[UUID], state: FailureState) -> Query[list[UUID]]:
    """Returns the groups that were in another state."""
    ids = [str(each) for each in failures]
    named = f"failure {ids[0]}" if len(ids) == 1 else f"{len(ids)} failures: {', '.join(ids[:20])}"
    return repeatable_query(
        "select stepwell.set_failures(%s::uuid[], %s::text)", (list(failures), state), act=Act(_ACTS[state], named)
    )
