"""List, count, retry and cancel jobs by a filter. Python and the command line run the same plans.

Every query looks at a bounded number of jobs, in a transaction of its own, and the next one goes on where it stopped:
from the newest job to the oldest, so that no job is met twice. A change may be interrupted and begun again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import UUID

from stepwell.errors import ConfigError
from stepwell.jobs.check import check_count, check_reason, to_job_id
from stepwell.jobs.filter import JobFilters, to_match
from stepwell.postgres import queries
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.search import MOST_LOOKED_AT, JobMatch
from stepwell.postgres.query_plan import QueryPlan
from stepwell.values.duration import Duration, describe, seconds
from stepwell.values.job import LIVE, JobInfo, State

BATCH = 1000
"""How many jobs are read or changed at a time."""

Became = Literal["ready", "cancelled", "running", "undoing"]


@dataclass(frozen=True, slots=True)
class Change:
    """What can be done to many jobs."""

    verb: Literal["retry", "cancel", "run"]
    query: Callable[[Sequence[str]], Query[Any]]
    read: Callable[[list[Any]], dict[str, Became]]
    """What those that it applied to became, by the rows of the query."""
    states: tuple[State, ...] = ()
    """The states that a filter may name. Empty: this change is not made by a filter."""
    default: tuple[State, ...] = ()
    """The states that are meant where a filter names none."""
    step: str | None = None
    """The step that the jobs are to go back to."""
    goes_back: bool = False
    """They do not go on where they stood."""
    has_input: bool = False
    """The step is given something, so that jobs need not have come to it before."""

    @property
    def to_retry(self) -> bool:
        """Whether only those jobs are found that can be run again."""
        return self.verb == "retry"

    def narrow(self, which: JobMatch, what: str = "state") -> JobMatch:
        """The same filter for those states that this applies to. Of live jobs only running ones have a worker."""
        for state in which.states or ():
            if state not in self.states:
                raise ConfigError(f"{what} is {state!r}: {self.verb} is for jobs that are {', '.join(self.states)}")
        of_worker = self.verb == "cancel" and which.worker_id is not None
        return replace(which, states=which.states or (("running",) if of_worker else self.default))


def retrying(step: str | None = None, *, from_start: bool = False, input: str | None = None) -> Change:  # noqa: A002
    """Run jobs again: where they stood, from a step on, or from the start."""
    return Change(
        "retry",
        lambda ids: queries.jobs.retry(ids, step, from_start=from_start, input=input),
        _all_ready,
        states=("failed", "cancelled", "scheduled"),
        default=("failed",),
        step=step,
        goes_back=step is not None or from_start,
        has_input=input is not None,
    )


def cancelling(reason: str | None) -> Change:
    """Cancel jobs, and their children. Raises `BadArgs` for a reason that Postgres cannot keep."""
    reason = check_reason(reason)
    # One that is made ready is run once more, to undo its steps.
    became: dict[str, Became] = {"running": "running", "ready": "undoing"}
    return Change(
        "cancel",
        lambda ids: queries.jobs.cancel(ids, reason),
        lambda rows: {str(job_id): became.get(state, "cancelled") for job_id, state in rows},
        states=LIVE,
        default=LIVE,
    )


def hurrying() -> Change:
    """Have jobs that wait for their time run now."""
    return Change("run", queries.jobs.run_now, _all_ready)


def _all_ready(rows: list[Any]) -> dict[str, Became]:
    return {str(job_id): "ready" for job_id in rows[0]}


def list_jobs(
    caller: str, filters: JobFilters, limit: int, before: JobInfo | UUID | str | None, timeout: Duration
) -> QueryPlan[list[JobInfo]]:
    """What `App.jobs` does."""
    return list_matching(
        to_match(caller, filters),
        check_count(limit, "limit"),
        None if before is None else to_job_id(before),
        seconds(timeout, "timeout"),
    )


def count_jobs(caller: str, filters: JobFilters, at_most: int | None, timeout: Duration) -> QueryPlan[int]:
    """What `App.count_jobs` does."""
    most = None if at_most is None else check_count(at_most, "at_most")
    return count_matching(to_match(caller, filters), most, seconds(timeout, "timeout"))


def change_jobs(
    caller: str, change: Change, queue: str | None, everything: bool, filters: JobFilters
) -> QueryPlan[int]:
    """What `App.retry_jobs` and `App.cancel_jobs` do."""
    if queue is not None:
        if filters.get("queue") is not None:
            raise ConfigError(f"{caller} was given two queues: give one")
        filters = {**filters, "queue": queue}
    if not isinstance(everything, bool):
        raise ConfigError(f"everything is {everything!r}: it must be True or False")
    which = to_match(caller, filters)
    if (which == JobMatch()) is not everything:
        raise ConfigError(
            f"{caller} was given {'filters and everything=' if everything else 'nothing'}: give a queue, filters such "
            f'as task=, or everything=True, such as {caller}("mail")'
        )
    return (yield from change_matching(change, change.narrow(which))).total()


def list_matching(which: JobMatch, limit: int, before: str | None, timeout: float) -> QueryPlan[list[JobInfo]]:
    """The newest jobs that match, the newest first, older than the one with the id `before`."""
    found: list[JobInfo] = []
    until = time.monotonic() + timeout
    while True:
        rows = yield queries.search.find_page(which, before, min(limit - len(found), BATCH))
        found += [job for _, job in rows if job is not None]
        before = rows[0][0]
        if before is None or len(found) >= limit:
            return found
        if time.monotonic() > until:
            raise TimeoutError(
                f"found {len(found)} of {limit} jobs within {describe(timeout)}, and there are more to look at: name "
                "a state, give newer_than or a smaller limit, or a longer timeout"
            )


def count_matching(which: JobMatch, at_most: int | None, timeout: float, *, to_retry: bool = False) -> QueryPlan[int]:
    """How many jobs match. What changes meanwhile may be counted or not."""
    counted = 0
    before: str | None = None
    until = time.monotonic() + timeout
    while True:
        most = MOST_LOOKED_AT if at_most is None else min(at_most - counted, MOST_LOOKED_AT)
        [(found, before)] = yield queries.search.find_count(which, before, most, to_retry=to_retry)
        counted += found
        if before is None or counted == at_most:
            return counted
        if time.monotonic() > until:
            raise TimeoutError(
                f"counted {counted} jobs within {describe(timeout)}, and there are more to look at: name a state, give "
                "newer_than or at_most, or a longer timeout"
            )


def change_matching(
    change: Change, which: JobMatch, told: Callable[[Counter[Became]], None] | None = None
) -> QueryPlan[Counter[Became]]:
    """Change every job that matches a filter as `change.narrow` returns it, and count what they became. `told` hears so
    after each batch."""
    total: Counter[Became] = Counter()
    before: str | None = None
    while True:
        [(ids, before)] = yield queries.search.find_ids(which, before, BATCH, to_retry=change.to_retry)
        if ids:
            total.update(change.read((yield change.query(ids))).values())
        if told is not None:
            told(total)
        if before is None:
            return total
