"""Calls that read and set limits and rates by key, and limits of queues."""

from __future__ import annotations

from stepwell.postgres.queries.query import Query, repeatable_query
from stepwell.values.limit_info import LimitInfo


def limits(key: str | None = None) -> Query[LimitInfo]:
    """List the limits and rates; `key`: only this one."""
    return repeatable_query(
        "select key, most, most_is_set, held, rate, burst, rate_is_set, next_at, waiting, set_at"
        " from stepwell.list_limits(%s::text)",
        (key,),
        LimitInfo,
    )


def set_limit(key: str, most: int | None) -> Query[None]:
    return repeatable_query("select stepwell.set_limit(%s::text, %s::integer)", (key, most))


def set_queue_limit(queue: str, most: int | None) -> Query[None]:
    return repeatable_query("select stepwell.set_queue_limit(%s::text, %s::integer)", (queue, most))


def set_queue_rate(queue: str, count: int | None, per: float | None, burst: int | None) -> Query[None]:
    return repeatable_query(
        "select stepwell.set_queue_rate(%s::text, %s::integer, %s::double precision, %s::integer)",
        (queue, count, per, burst),
    )


def set_rate(key: str, count: int | None, per: float | None, burst: int | None) -> Query[None]:
    return repeatable_query(
        "select stepwell.set_rate(%s::text, %s::integer, %s::double precision, %s::integer)", (key, count, per, burst)
    )
