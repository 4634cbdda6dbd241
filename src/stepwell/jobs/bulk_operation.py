"""Start a bulk operation, which the workers work off. `bulk` does the same in the calling process."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from stepwell.jobs.bulk import JobAct
from stepwell.postgres import queries
from stepwell.postgres.query_plan import QueryPlan
from stepwell.telemetry.bus import counted

if TYPE_CHECKING:
    from stepwell.postgres.queries.search import JobMatch


MOST_COUNTED = 10_000
"""More jobs than these are not counted."""
# Longer than a page may take: a person waits for the question.
_COUNTING = 5_000


class Counted(msgspec.Struct, frozen=True):
    """What a bulk operation would change, for somebody to confirm."""

    count: int
    """Up to 10,001."""
    more: bool
    """Whether there may be more."""
    looked: int
    """How many jobs were looked at."""
    as_of: str
    """An operation changes no newer jobs."""
    filter: dict[str, Any]
    """With the times that its ages had then."""

    def of(self, noun: str) -> str:
        """The count and its noun, for a question."""
        if self.count > MOST_COUNTED:
            return f"more than {MOST_COUNTED:,} {noun}s"
        number, looked = counted(self.count, noun), counted(self.looked, "job")
        return f"{number} or more (there was time to look at {looked} only)" if self.more else number


def count_bulk(act: JobAct, which: JobMatch, milliseconds: int = _COUNTING) -> QueryPlan[Counted]:
    """Count the jobs that a bulk operation would change, for some seconds at most."""
    given = yield from _filter_of(which)
    [found] = yield queries.bulk.preview(act.verb, given, milliseconds=milliseconds)
    return Counted(found["count"], found["more"], found["looked"], found["as_of"], given)


def start_bulk(act: JobAct, which: JobMatch, asked_by: str, confirmed: Counted | None = None) -> QueryPlan[str]:
    """Start to change all jobs that match, and return the id of the operation. If somebody has confirmed a count, jobs
    that were enqueued or have ended since are left unchanged."""
    if confirmed is None:
        given, expected, as_of = (yield from _filter_of(which)), None, None
    else:
        given, expected, as_of = confirmed.filter, confirmed.count, confirmed.as_of
    [bulk_id] = yield queries.bulk.start(act.verb, given, act.options, expected, asked_by, as_of)
    return bulk_id


def _filter_of(which: JobMatch) -> QueryPlan[dict[str, Any]]:
    [now] = yield queries.reads.clock()
    after, until = (
        None if age is None else now - timedelta(seconds=age) for age in (which.newer_than, which.older_than)
    )
    return as_filter(
        states=which.states,
        queue=which.queue,
        task=which.task,
        owner=which.owner,
        worker=which.worker_id,
        metadata=None if which.metadata is None else msgspec.json.decode(which.metadata),
        error=which.error,
        after=after,
        until=until,
        group=which.group_id,
        failure=which.failure,
    )


def as_filter(**given: Any) -> dict[str, Any]:
    """A filter as stepwell.start_bulk takes it: what is None is left out, ids and times become text."""
    return {name: msgspec.to_builtins(value) for name, value in given.items() if value is not None}
