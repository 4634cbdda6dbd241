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

from stepwell import queries
from stepwell.duration import Duration, describe, seconds
from stepwell.errors import ConfigError
from stepwell.handle import to_job_id
from stepwell.job import LIVE, JobInfo, State
from stepwell.job_filter import JobFilters, to_filter
from stepwell.plan import Plan
from stepwell.queries import MOST_LOOKED_AT, JobFilter, Query

_BATCH = 1000
"""How many jobs are read or changed at a time."""

Became = Literal["ready", "cancelled", "running", "undoing"]


@dataclass(frozen=True, slots=True)
class Change:
    """What can be done to many jobs."""

    verb: Literal["retry", "cancel", "run"]
    states: tuple[State, ...]
    """The states it applies to."""
    default: tuple[State, ...]
    """The states that are meant where a filter names none."""
    query: Callable[[Sequence[str]], Query[Any]]
    read: Callable[[list[Any]], dict[str, Became]]
    """What those that it applied to became, by the rows of the query."""
    step: str | None = None
    """The step that the jobs are to go back to."""
    goes_back: bool = False
    """They do not go on where they stood."""
    has_input: bool = False
    """The step is given something, so that jobs need not have come to it before."""

    def narrow(self, which: JobFilter, what: str = "state") -> JobFilter:
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
        ("failed", "cancelled", "scheduled"),
        ("failed",),
        lambda ids: queries.retry(ids, step, from_start=from_start, input=input),
        _all_ready,
        step,
        step is not None or from_start,
        input is not None,
    )


def cancelling(reason: str | None) -> Change:
    """Cancel jobs, and their children."""
    # One that is made ready is run once more, to undo its steps.
    became: dict[str, Became] = {"running": "running", "ready": "undoing"}
    return Change(
        "cancel",
        LIVE,
        LIVE,
        lambda ids: queries.cancel(ids, reason),
        lambda rows: {str(job_id): became.get(state, "cancelled") for job_id, state in rows},
    )


def hurrying() -> Change:
    """Have jobs that wait for their time run now."""
    return Change("run", ("scheduled", "waiting"), ("scheduled",), queries.run_now, _all_ready)


def _all_ready(rows: list[Any]) -> dict[str, Became]:
    return {str(job_id): "ready" for job_id in rows[0]}


def list_jobs(
    caller: str, filters: JobFilters, limit: int, before: JobInfo | UUID | str | None, timeout: Duration
) -> Plan[list[JobInfo]]:
    """What `App.jobs` does."""
    return list_matching(
        to_filter(caller, filters),
        _check_count(limit, "limit"),
        None if before is None else to_job_id(before),
        seconds(timeout, "timeout"),
    )


def count_jobs(caller: str, filters: JobFilters, at_most: int | None, timeout: Duration) -> Plan[int]:
    """What `App.count_jobs` does."""
    most = None if at_most is None else _check_count(at_most, "at_most")
    return count_matching(to_filter(caller, filters), most, seconds(timeout, "timeout"))


def change_jobs(caller: str, change: Change, queue: str | None, everything: bool, filters: JobFilters) -> Plan[int]:
    """What `App.retry_jobs` and `App.cancel_jobs` do."""
    if queue is not None:
        if filters.get("queue") is not None:
            raise ConfigError(f"{caller} was given two queues: give one")
        filters = {**filters, "queue": queue}
    if not isinstance(everything, bool):
        raise ConfigError(f"everything is {everything!r}: it must be True or False")
    which = to_filter(caller, filters)
    if (which == JobFilter()) is not everything:
        raise ConfigError(
            f"{caller} was given {'filters and everything=' if everything else 'nothing'}: give a queue, filters such "
            f'as task=, or everything=True, such as {caller}("mail")'
        )
    return (yield from change_matching(change, which)).total()


def list_matching(which: JobFilter, limit: int, before: str | None, timeout: float) -> Plan[list[JobInfo]]:
    """The newest jobs that match, the newest first, older than the one with the id `before`."""
    found: list[JobInfo] = []
    until = time.monotonic() + timeout
    while True:
        rows = yield queries.list_jobs(which, before, min(limit - len(found), _BATCH))
        found += [job for _, job in rows if job is not None]
        before = rows[0][0]
        if before is None or len(found) >= limit:
            return found
        if time.monotonic() > until:
            raise TimeoutError(
                f"found {len(found)} of {limit} jobs within {describe(timeout)}, and there are more to look at: name "
                "a state, give newer_than or a smaller limit, or a longer timeout"
            )


def count_matching(which: JobFilter, at_most: int | None, timeout: float, *, to_retry: bool = False) -> Plan[int]:
    """How many jobs match. What changes meanwhile may be counted or not."""
    counted = 0
    before: str | None = None
    until = time.monotonic() + timeout
    while True:
        most = MOST_LOOKED_AT if at_most is None else min(at_most - counted, MOST_LOOKED_AT)
        [(found, before)] = yield queries.count_jobs(which, before, most, to_retry=to_retry)
        counted += found
        if before is None or counted == at_most:
            return counted
        if time.monotonic() > until:
            raise TimeoutError(
                f"counted {counted} jobs within {describe(timeout)}, and there are more to look at: name a state, give "
                "newer_than or at_most, or a longer timeout"
            )


def change_matching(
    change: Change, which: JobFilter, told: Callable[[Counter[Became]], None] | None = None
) -> Plan[Counter[Became]]:
    """Change every job that matches, and count what they became. `told` hears so after each batch."""
    which = change.narrow(which)
    total: Counter[Became] = Counter()
    before: str | None = None
    while True:
        [(ids, before)] = yield queries.job_ids(which, before, _BATCH, to_retry=change.verb == "retry")
        if ids:
            total.update(change.read((yield change.query(ids))).values())
        if told is not None:
            told(total)
        if before is None:
            return total


def _check_count(number: int, what: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= 2**62:
        raise ConfigError(f"{what} is {number!r}: it must be a whole number of at least 1")
    return number
