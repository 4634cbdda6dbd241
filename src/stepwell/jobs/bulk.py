"""List and count jobs by a filter, and the acts that change many jobs. `App` and the command line list and count by the
same plans.

`App.retry_jobs` and `App.cancel_jobs` act here, in the calling process. The command line and the dashboard act by a
bulk operation (`bulk_operation`), or by ids (`act_by_id`). Every query reads a bounded number of jobs, in a transaction
of its own, and the next one continues where it stopped. The order is from the newest job to the oldest, so no job is
met twice. An act may be interrupted and repeated.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID, uuid4

import msgspec

from stepwell.errors import ConfigError
from stepwell.jobs.cancelled import tell_cancelled
from stepwell.jobs.check import check_reason, to_job_id
from stepwell.jobs.filter import JobFilters, JobSelection, to_match
from stepwell.jobs.options import check_place
from stepwell.postgres import queries
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.query import Act
from stepwell.postgres.query_plan import QueryPlan
from stepwell.telemetry.bus import EventBus
from stepwell.values.bounds import check_whole
from stepwell.values.duration import Duration, describe, seconds
from stepwell.values.job import FINISHED, LIVE, JobInfo, State

if TYPE_CHECKING:
    from stepwell.postgres.queries.bulk import BulkAct
    from stepwell.postgres.queries.jobs import CancelledJob
    from stepwell.postgres.queries.search import JobMatch

CHUNK = 1000
"""How many jobs one query reads or changes."""

Became = Literal["ready", "cancelled", "running", "undoing", "deleted", "moved"]


class JobAct(msgspec.Struct, frozen=True):
    """An act that changes jobs."""

    verb: BulkAct
    query: Callable[[Sequence[str]], Query[Any]]
    read: Callable[[list[Any]], dict[str, Became]]
    """Read from the rows of the query which jobs were changed, and what each became."""
    states: tuple[State, ...] = ()
    """The states that a filter may name. Empty: this act takes no filter."""
    default: tuple[State, ...] = ()
    """The states that apply if a filter names none."""
    step: str | None = None
    goes_back: bool = False
    """Whether the jobs continue at a given step or start over, instead of where they stopped."""
    options: dict[str, Any] = {}
    """The options of a bulk operation with this act."""
    has_input: bool = False
    """Whether the step gets an input. Then jobs need not have reached it before."""

    @property
    def to_retry(self) -> bool:
        return self.verb == "retry"

    def narrow(self, which: JobMatch, what: str = "state") -> JobMatch:
        """Narrow a filter to the states that this act applies to. Of live jobs, only running ones have a worker."""
        for state in which.states or ():
            if state not in self.states:
                raise ConfigError(f"{what} is {state!r}: {self.verb} is for jobs that are {', '.join(self.states)}")
        of_worker = self.verb == "cancel" and which.worker_id is not None
        return replace(which, states=which.states or (("running",) if of_worker else self.default))


def retrying(step: str | None = None, *, from_start: bool = False, input: str | None = None) -> JobAct:  # noqa: A002
    return JobAct(
        "retry",
        lambda ids: queries.jobs.retry(ids, step, from_start=from_start, input=input),
        _all_ready,
        states=("failed", "cancelled", "scheduled"),
        default=("failed",),
        step=step,
        goes_back=step is not None or from_start,
        has_input=input is not None,
        options={"from_start": True} if from_start else {},
    )


def cancelling(reason: str | None, events: EventBus | None = None) -> JobAct:
    """Cancel jobs and their children. Raises `BadArgs` for a reason that Postgres cannot store."""
    reason = check_reason(reason)
    # A cancelled job that becomes ready runs once more, to compensate its steps.
    became: dict[str, Became] = {"running": "running", "ready": "undoing"}

    def read(jobs: list[CancelledJob]) -> dict[str, Became]:
        if events is not None:
            tell_cancelled(events, jobs, reason)
        return {job.id: became.get(job.state, "cancelled") for job in jobs}

    return JobAct(
        "cancel",
        lambda ids: queries.jobs.cancel(ids, reason),
        read,
        states=LIVE,
        default=LIVE,
        options={} if reason is None else {"reason": reason},
    )


def running_now() -> JobAct:
    states: tuple[State, ...] = ("scheduled", "waiting")
    return JobAct("run", queries.jobs.run_now, _all_ready, states=states, default=states)


def deleting() -> JobAct:
    return JobAct("delete", queries.jobs.delete, lambda rows: _all(rows, "deleted"), states=FINISHED, default=FINISHED)


def moving(queue: str | None = None, priority: int | None = None, run_at: datetime | None = None) -> JobAct:
    """Move jobs that do not run to another queue, priority or time. Raises `ConfigError` for what no job may have."""
    check_place(queue, priority, run_at)
    options = {"queue": queue, "priority": priority, "run_at": None if run_at is None else run_at.isoformat()}
    states: tuple[State, ...] = ("scheduled", "ready", "blocked")
    return JobAct(
        "move",
        lambda ids: queries.jobs.move(ids, queue, priority, run_at),
        lambda rows: _all(rows, "moved"),
        states=states,
        default=states,
        options={name: value for name, value in options.items() if value is not None},
    )


def _all(rows: list[Any], became: Became) -> dict[str, Became]:
    return {str(job_id): became for job_id in rows[0]}


def _all_ready(rows: list[Any]) -> dict[str, Became]:
    return _all(rows, "ready")


def list_jobs(
    caller: str, filters: JobFilters, limit: int, before: JobInfo | UUID | str | None, timeout: Duration
) -> QueryPlan[list[JobInfo]]:
    return list_matching(
        to_match(caller, filters),
        check_whole(limit, "limit", 1),
        None if before is None else to_job_id(before),
        seconds(timeout, "timeout"),
    )


def count_jobs(caller: str, filters: JobFilters, at_most: int | None, timeout: Duration) -> QueryPlan[int]:
    most = None if at_most is None else check_whole(at_most, "at_most", 1)
    return count_matching(to_match(caller, filters), most, seconds(timeout, "timeout"))


def change_jobs(caller: str, act: JobAct, queue: str | None, selection: JobSelection) -> QueryPlan[int]:
    everything = selection.pop("everything", False)
    filters: JobFilters = selection
    if queue is not None:
        if filters.get("queue") is not None:
            raise ConfigError(f"{caller} was given two queues: give one")
        filters = {**filters, "queue": queue}
    if not isinstance(everything, bool):
        raise ConfigError(f"everything is {everything!r}: it must be True or False")
    which = to_match(caller, filters)
    if (which == queries.search.JobMatch()) is not everything:
        raise ConfigError(
            f"{caller} was given {'filters and everything=' if everything else 'nothing'}: give a queue, filters such "
            f'as task=, or everything=True, such as {caller}("mail")'
        )
    return (yield from change_matching(act, act.narrow(which))).total()


def list_matching(which: JobMatch, limit: int, before: str | None, timeout: float) -> QueryPlan[list[JobInfo]]:
    """List the newest jobs that match and are older than the job `before`, newest first."""
    found: list[JobInfo] = []
    until = time.monotonic() + timeout
    while True:
        rows = yield queries.search.find_page(which, before, min(limit - len(found), CHUNK))
        found += [job for _, job in rows if job is not None]
        before = rows[0][0]
        if before is None or len(found) >= limit:
            return found
        if time.monotonic() > until:
            raise TimeoutError(
                f"found {len(found)} of {limit} jobs within {describe(timeout)}, and there are more to search: name "
                "a state, give newer_than or a smaller limit, or a longer timeout"
            )


def count_matching(which: JobMatch, at_most: int | None, timeout: float, *, to_retry: bool = False) -> QueryPlan[int]:
    """Count the jobs that match. Jobs that change meanwhile may be counted or not."""
    counted = 0
    before: str | None = None
    until = time.monotonic() + timeout
    while True:
        most = (
            queries.search.MOST_LOOKED_AT if at_most is None else min(at_most - counted, queries.search.MOST_LOOKED_AT)
        )
        [(found, before)] = yield queries.search.find_count(which, before, most, to_retry=to_retry)
        counted += found
        if before is None or counted == at_most:
            return counted
        if time.monotonic() > until:
            raise TimeoutError(
                f"counted {counted} jobs within {describe(timeout)}, and there are more to search: name a state, give "
                "newer_than or at_most, or a longer timeout"
            )


def change_matching(act: JobAct, which: JobMatch) -> QueryPlan[Counter[Became]]:
    """Change every job that matches a filter from `act.narrow`."""
    total: Counter[Became] = Counter()
    before: str | None = None
    # All chunks are recorded as one act.
    record = Act(act.verb, f"jobs with {which.text}", bulk=uuid4())
    while True:
        [(ids, before)] = yield queries.search.find_ids(which, before, CHUNK, to_retry=act.to_retry)
        if ids:
            total.update(act.read((yield msgspec.structs.replace(act.query(ids), act=record))).values())
        if before is None:
            return total
