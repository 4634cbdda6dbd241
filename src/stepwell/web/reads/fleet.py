"""The overview, queues, tasks, schedules, workers, failures, limits and the database itself.

The SQL function knows how many rows a list has if `limit` is None.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from stepwell.postgres.queries.limits import task_settings
from stepwell.postgres.queries.query import Query, repeatable_query
from stepwell.values.setting import Setting
from stepwell.web.reads.call import loaded


def overview(span: str) -> Query[dict[str, Any]]:
    """`span`: the range of the charts, such as 1h."""
    return repeatable_query("select stepwell.dashboard_overview(_range => %s::text)::text", (span,), loaded)


def queues(span: str, after: str | None = None, limit: int | None = None) -> Query[dict[str, Any]]:
    return repeatable_query(
        "select stepwell.dashboard_queues(_after => %s::text, _limit => %s::integer, _range => %s::text)::text",
        (after, limit, span),
        loaded,
    )


def queue(span: str, name: str) -> Query[dict[str, Any]]:
    return repeatable_query(
        "select stepwell.dashboard_queues(_name => %s::text, _range => %s::text)::text", (name, span), loaded
    )


def tasks(span: str, after: str | None = None, limit: int | None = None) -> Query[dict[str, Any]]:
    return repeatable_query(
        "select stepwell.dashboard_tasks(_limit => %s::integer, _range => %s::text, _after => %s::text)::text",
        (limit, span, after),
        loaded,
    )


def settings(task: str, in_code: str | None = None) -> Query[Setting]:
    """The settings of a task: as in this code, or else as the newest live worker has them that knows the task."""
    return task_settings(task, in_code, None)


def workers(before: int | None = None, limit: int | None = None) -> Query[dict[str, Any]]:
    return repeatable_query(
        "select stepwell.dashboard_workers(_limit => %s::integer, _before => %s::integer)::text",
        (limit, before),
        loaded,
    )


def schedules(
    owner: str | None = None,
    name: str | None = None,
    ticks: int = 10,
    after: tuple[str | None, str | None] = (None, None),
    limit: int | None = None,
) -> Query[dict[str, Any]]:
    """Schedules `after` the one with this owner and name."""
    return repeatable_query(
        "select stepwell.dashboard_schedules(_limit => %s::integer, _owner => %s::text, _name => %s::text,"
        " _ticks => %s::integer, _after_owner => %s::text, _after_name => %s::text)::text",
        (limit, owner, name, ticks, *after),
        loaded,
    )


def failures(state: str | None, task: str | None, sort: str, after: UUID | None, limit: int) -> Query[dict[str, Any]]:
    return repeatable_query(
        "select stepwell.dashboard_failures(%s::text, %s::text, %s::text, %s::uuid, %s::integer)::text",
        (state, task, sort, after, limit),
        loaded,
    )


def failure(fingerprint: UUID) -> Query[dict[str, Any] | None]:
    return repeatable_query("select stepwell.dashboard_failure(%s::uuid)::text", (fingerprint,), loaded)


def limits(after: str | None = None, limit: int | None = None) -> Query[dict[str, Any]]:
    return repeatable_query(
        "select stepwell.dashboard_limits(_after => %s::text, _limit => %s::integer)::text", (after, limit), loaded
    )


def database() -> Query[dict[str, Any]]:
    return repeatable_query("select stepwell.dashboard_database()::text", (), loaded)
