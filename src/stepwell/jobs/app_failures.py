"""The calls of `App` about groups of failures: list them, and set their states."""

from __future__ import annotations

from typing import Literal, get_args
from uuid import UUID

from stepwell.jobs.filter import check_failure, check_text
from stepwell.jobs.task import Task
from stepwell.postgres import queries
from stepwell.postgres.database_type import Database
from stepwell.postgres.queries import Query
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.values.bounds import check_choice, check_whole
from stepwell.values.failure_info import FailureInfo, FailureState
from stepwell.values.public_call import public_call

STATES: tuple[FailureState, ...] = get_args(FailureState)
MOST = 1000
FailureOrder = Literal["last", "count"]


class AppFailures:
    """The part of `App` that is about groups of failures."""

    database: Database

    @public_call("app.failures")
    def failures(
        self,
        state: FailureState | None = "open",
        *,
        task: str | Task[..., object] | None = None,
        sort: FailureOrder = "last",
        limit: int = 100,
    ) -> list[FailureInfo]:
        """List the groups of failures in the database, of every app: by default those that are open, the last seen
        first. With `state=None`, those in any state; with `sort="count"`, the largest first."""
        refuse_in_event_loop("failures", "afailures")
        return self.database.fetch(_failures(state, task, sort, limit))

    @public_call("app.afailures")
    async def afailures(
        self,
        state: FailureState | None = "open",
        *,
        task: str | Task[..., object] | None = None,
        sort: FailureOrder = "last",
        limit: int = 100,
    ) -> list[FailureInfo]:
        """The same as `failures`, for async code."""
        return await self.database.afetch(_failures(state, task, sort, limit))

    def set_failure(self, failure: FailureInfo | UUID | str, state: FailureState) -> bool:
        """Set the state of a group of failures: "resolved" until it fails again, "ignored" for good, or "open". False:
        it was in that state, or there is no such group."""
        refuse_in_event_loop("set_failure", "aset_failure")
        return bool(self.database.fetch(_set_failure(failure, state))[0])

    async def aset_failure(self, failure: FailureInfo | UUID | str, state: FailureState) -> bool:
        """The same as `set_failure`, for async code."""
        return bool((await self.database.afetch(_set_failure(failure, state)))[0])


def _failures(
    state: FailureState | None, task: str | Task[..., object] | None, sort: FailureOrder, limit: int
) -> Query[FailureInfo]:
    return queries.failures.list_failures(
        None if state is None else check_choice(state, "state", STATES),
        check_text(task.name if isinstance(task, Task) else task, "task"),
        check_choice(sort, "sort", get_args(FailureOrder)),
        check_whole(limit, "limit", 1, MOST),
    )


def _set_failure(failure: FailureInfo | UUID | str, state: FailureState) -> Query[list[UUID]]:
    given = failure.id if isinstance(failure, FailureInfo) else check_failure(failure)
    return queries.failures.set_failures([given], check_choice(state, "state", STATES))
