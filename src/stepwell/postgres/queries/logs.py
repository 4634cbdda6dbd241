"""Calls about what people look at while a job runs: its log lines, and the stack of its handler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from stepwell.postgres.queries.arrays import bare, texts, times
from stepwell.postgres.queries.query import Query, repeatable_query
from stepwell.postgres.queries.reads import value_of
from stepwell.values.log_line import LogLine


def write_logs(lines: Sequence[LogLine], cut: Mapping[str, int]) -> Query[int]:
    return Query(
        "select stepwell.write_logs(%s::uuid[], %s::integer[], %s::timestamptz[], %s::integer[], %s::text[],"
        " %s::text[], %s::uuid[], %s::integer[])",
        (
            bare(line.job_id for line in lines),
            bare(line.attempt for line in lines),
            times(line.time for line in lines),
            bare(line.level for line in lines),
            texts(line.logger for line in lines),
            texts(line.message for line in lines),
            list(cut),
            list(cut.values()),
        ),
    )


def job_logs(
    job_id: UUID | str, level: int = 0, before: int | None = None, after: int | None = None, limit: int = 100
) -> Query[dict[str, Any] | None]:
    """A page of the log lines of a job; None: there is no such job."""
    return repeatable_query(
        # As text: psycopg would decode JSON by the settings of the connection.
        "select stepwell.job_logs(%s::uuid, %s::integer, %s::integer, %s::integer, %s::integer)::text",
        (str(job_id), level, before, after, limit),
        value_of,
    )


@dataclass(frozen=True, slots=True)
class StackAsked:
    """A request for a stack, and the worker that was asked; or why there is no stack. All None: no such job."""

    request: str | None
    worker: str | None
    why: str | None


def ask_stack(job_id: UUID | str) -> Query[StackAsked]:
    return Query("select request::text, worker, why from stepwell.ask_stack(%s::uuid)", (str(job_id),), StackAsked)


def read_stack(request: str, *, last: bool = False) -> Query[str | None]:
    return Query("select stepwell.read_stack(%s::uuid, %s::boolean)", (request, last))


def answer_stacks(worker_id: str, requests: Sequence[str], answers: Sequence[str]) -> Query[None]:
    return Query(
        "select stepwell.answer_stacks(%s::uuid, %s::uuid[], %s::text[])", (worker_id, list(requests), list(answers))
    )
