"""The call that adds to the counters of how runs ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from stepwell.postgres.queries.query import Query, only


@dataclass(slots=True)
class Sums:
    """How many runs of a task in a queue ended in which way, and their time; in the order of stepwell.add_stats."""

    task: str
    queue: str
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    handed_back: int = 0
    seconds: float = 0.0
    suspended: int = 0
    snoozed: int = 0
    advanced: int = 0
    restarted: int = 0
    undone: int = 0
    refused: int = 0


def add_stats(sums: Sequence[Sums]) -> Query[None]:
    return Query(
        "select stepwell.add_stats(%s::text[], %s::text[], %s::integer[], %s::integer[], %s::integer[], %s::integer[],"
        " %s::double precision[], %s::integer[], %s::integer[], %s::integer[], %s::integer[], %s::integer[],"
        " %s::integer[])",
        [[getattr(each, field.name) for each in sums] for field in fields(Sums)],
        only,
    )
