"""The call that adds to the counters of how runs ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.postgres.queries.query import Query, only


@dataclass(slots=True)
class Sums:
    """How many runs of a task in a queue ended in which way, and their total time."""

    task: str
    queue: str
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    handed_back: int = 0
    suspended: int = 0
    snoozed: int = 0
    advanced: int = 0
    restarted: int = 0
    undone: int = 0
    refused: int = 0
    seconds: float = 0.0


def add_stats(sums: Sequence[Sums]) -> Query[None]:
    return Query(
        "select stepwell.add_stats(%s::text[], %s::text[], %s::integer[], %s::integer[], %s::integer[], %s::integer[],"
        " %s::double precision[], %s::integer[], %s::integer[], %s::integer[], %s::integer[], %s::integer[],"
        " %s::integer[])",
        (
            [each.task for each in sums],
            [each.queue for each in sums],
            [each.succeeded for each in sums],
            [each.failed for each in sums],
            [each.cancelled for each in sums],
            [each.handed_back for each in sums],
            [each.seconds for each in sums],
            [each.suspended for each in sums],
            [each.snoozed for each in sums],
            [each.advanced for each in sums],
            [each.restarted for each in sums],
            [each.undone for each in sums],
            [each.refused for each in sums],
        ),
        only,
    )
