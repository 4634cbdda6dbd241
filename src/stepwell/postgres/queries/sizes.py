"""Calls that read and change the size limits of stored values."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.postgres.queries.query import Act, Query, once


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """The limit in bytes for one kind of value."""

    name: str
    bytes: int


def size_limits() -> Query[SizeLimit]:
    return Query("select name, bytes from stepwell.size_limits order by name", (), SizeLimit)


def set_size_limit(name: str, size: int) -> Query[int]:
    act = Act("set size", f"{name}: {size} bytes", once)
    return Query("select stepwell.set_size_limit(%s::text, %s::bigint)", (name, size), act=act)
