"""The calls of `App` about jobs: handles, enqueue_many, events, and lists and changes by filter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, TypeVar, Unpack, overload
from uuid import UUID

from stepwell.jobs.bulk import cancelling, change_jobs, count_jobs, list_jobs, retrying
from stepwell.jobs.check import encode_event, to_job_id
from stepwell.jobs.enqueue import JobStore
from stepwell.jobs.enqueuer import Call, Enqueuer, check_calls
from stepwell.jobs.filter import JobFilters, JobSelection
from stepwell.jobs.group import Group, NewGroup, find_group
from stepwell.jobs.handle import JobHandle, fork
from stepwell.jobs.reads import opened_info
from stepwell.postgres import queries
from stepwell.postgres.database_type import Database
from stepwell.postgres.query_plan import QueryPlan, arun, run_call
from stepwell.values.bounds import check_name
from stepwell.values.duration import Duration, seconds
from stepwell.values.group import GroupSummary
from stepwell.values.job import JobInfo
from stepwell.values.sealing import Sealer

R = TypeVar("R")
AnyJob: TypeAlias = JobInfo | UUID | str


class AppJobs:
    """The part of `App` that is about jobs."""

    database: Database
    _job_store: JobStore

    def job(self, job_id: AnyJob) -> JobHandle[Any]:
        """Return a handle to a job, by its id or as `jobs` lists it. Its result is plain JSON values."""
        return self._job_store.handle(to_job_id(job_id))

    def enqueue_many(self, calls: Iterable[Call[Any]], *, connection: object | None = None) -> list[JobHandle[Any]]:
        """Enqueue calls of any tasks, all or none: `app.enqueue_many([add.call(1, 2), greet.call("Ada")])`."""
        return self._job_store.enqueue_many(check_calls(list(calls), "app.enqueue_many"), connection)

    async def aenqueue_many(
        self, calls: Iterable[Call[Any]], *, connection: object | None = None
    ) -> list[JobHandle[Any]]:
        """The same as `enqueue_many`, for async code."""
        return await self._job_store.aenqueue_many(check_calls(list(calls), "app.enqueue_many"), connection)

    @overload
    def group(
        self, calls: Iterable[Call[Any]], *, then: Enqueuer[..., R], connection: object | None = None
    ) -> Group[R]: ...
    @overload
    def group(self, calls: Iterable[Call[Any]], *, connection: object | None = None) -> Group[Any]: ...
    def group(
        self,
        calls: Iterable[Call[Any]],
        *,
        then: Enqueuer[..., Any] | None = None,
        connection: object | None = None,
    ) -> Group[Any]:
        """Enqueue calls of any tasks as one group, all or none. When all have ended, in whichever way, the task `then`
        starts once, with a `GroupSummary` as its first argument: `app.group([resize.call(n) for n in pages],
        then=publish)`. It may also take no arguments. An empty group starts it at once.

        `then` may have options, `publish.using(queue="mail")`; a delay begins when all have ended. A call whose unique
        key is taken makes no job, and is no member. With `connection`, the group exists if and only if your
        transaction commits.
        """
        return NewGroup(self._job_store, list(calls), then).enqueue(connection)

    @overload
    async def agroup(
        self, calls: Iterable[Call[Any]], *, then: Enqueuer[..., R], connection: object | None = None
    ) -> Group[R]: ...
    @overload
    async def agroup(self, calls: Iterable[Call[Any]], *, connection: object | None = None) -> Group[Any]: ...
    async def agroup(
        self,
        calls: Iterable[Call[Any]],
        *,
        then: Enqueuer[..., Any] | None = None,
        connection: object | None = None,
    ) -> Group[Any]:
        """The same as `group`, for async code."""
        return await NewGroup(self._job_store, list(calls), then).aenqueue(connection)

    def get_group(self, group_id: GroupSummary | UUID | str) -> Group[Any]:
        """Find a group again, by its id or its summary. Raises `GroupNotFound` if it does not exist or is no longer
        kept."""
        return run_call("get_group", find_group(self._job_store, group_id), self.database)

    async def aget_group(self, group_id: GroupSummary | UUID | str) -> Group[Any]:
        """The same as `get_group`, for async code."""
        return await arun(find_group(self._job_store, group_id), self.database)

    def emit(
        self,
        event: str,
        *,
        key: str | None = None,
        value: Any = None,
        keep: Duration = "30d",
        connection: object | None = None,
    ) -> None:
        """Emit an event: every job that waits for this name and key with `ctx.wait_for` continues. A job that begins to
        wait later finds the event for as long as it is kept. With `connection`, the event is emitted if and only if
        your transaction commits."""
        run_call("emit", _emit(event, key, value, keep, self._job_store.sealer), self.database, connection)

    async def aemit(
        self,
        event: str,
        *,
        key: str | None = None,
        value: Any = None,
        keep: Duration = "30d",
        connection: object | None = None,
    ) -> None:
        """The same as `emit`, for async code."""
        await arun(_emit(event, key, value, keep, self._job_store.sealer), self.database, connection)

    @overload
    def fork(self, job: JobHandle[R], *, step: str) -> JobHandle[R]: ...
    @overload
    def fork(self, job: AnyJob, *, step: str) -> JobHandle[Any]: ...
    def fork(self, job: JobHandle[Any] | AnyJob, *, step: str) -> JobHandle[Any]:
        """Make a new job that starts with everything another job, live or finished, had saved before a step. A chain or
        machine starts at that step. A fork of a job whose steps were compensated always starts over."""
        return run_call("fork", fork(self._handle_of(job), step), self.database)

    @overload
    async def afork(self, job: JobHandle[R], *, step: str) -> JobHandle[R]: ...
    @overload
    async def afork(self, job: AnyJob, *, step: str) -> JobHandle[Any]: ...
    async def afork(self, job: JobHandle[Any] | AnyJob, *, step: str) -> JobHandle[Any]:
        """The same as `fork`, for async code."""
        return await arun(fork(self._handle_of(job), step), self.database)

    def _handle_of(self, job: JobHandle[Any] | AnyJob) -> JobHandle[Any]:
        return job if isinstance(job, JobHandle) else self.job(job)

    def jobs(
        self,
        *,
        limit: int = 100,
        before: AnyJob | None = None,
        timeout: Duration = "30s",
        **filters: Unpack[JobFilters],
    ) -> list[JobInfo]:
        """List the newest jobs in the database that match all filters, live and finished, of every app, newest first:
        `app.jobs(state="failed", task=send, newer_than="1d")`. They have neither `failures` nor `steps`:
        `app.job(id).info()` has.

        `before` is the last job of the previous page. Raises `TimeoutError` if the search has to read many jobs and
        takes longer than `timeout`.
        """
        jobs = run_call("jobs", list_jobs("jobs", filters, limit, before, timeout), self.database)
        return [opened_info(job, self._job_store.sealer) for job in jobs]

    async def ajobs(
        self,
        *,
        limit: int = 100,
        before: AnyJob | None = None,
        timeout: Duration = "30s",
        **filters: Unpack[JobFilters],
    ) -> list[JobInfo]:
        """The same as `jobs`, for async code."""
        jobs = await arun(list_jobs("ajobs", filters, limit, before, timeout), self.database)
        return [opened_info(job, self._job_store.sealer) for job in jobs]

    def count_jobs(
        self, *, at_most: int | None = None, timeout: Duration = "30s", **filters: Unpack[JobFilters]
    ) -> int:
        """Count the jobs that match all filters. Postgres reads each of them: if there may be millions, stop counting
        at `at_most`. Raises `TimeoutError` after `timeout`."""
        return run_call("count_jobs", count_jobs("count_jobs", filters, at_most, timeout), self.database)

    async def acount_jobs(
        self, *, at_most: int | None = None, timeout: Duration = "30s", **filters: Unpack[JobFilters]
    ) -> int:
        """The same as `count_jobs`, for async code."""
        return await arun(count_jobs("acount_jobs", filters, at_most, timeout), self.database)

    def retry_jobs(
        self, in_queue: str | None = None, /, *, from_start: bool = False, **which: Unpack[JobSelection]
    ) -> int:
        """Retry all failed jobs that match the filters, of every app, as `JobHandle.retry` does; with `state`,
        cancelled jobs, or scheduled jobs that wait for their next attempt. Returns how many.

        Each chunk is committed: if the call is interrupted, call it again.
        """
        plan = change_jobs("retry_jobs", retrying(from_start=from_start), in_queue, which)
        return run_call("retry_jobs", plan, self.database)

    async def aretry_jobs(
        self, in_queue: str | None = None, /, *, from_start: bool = False, **which: Unpack[JobSelection]
    ) -> int:
        """The same as `retry_jobs`, for async code."""
        return await arun(change_jobs("aretry_jobs", retrying(from_start=from_start), in_queue, which), self.database)

    def cancel_jobs(
        self, in_queue: str | None = None, /, *, reason: str | None = None, **which: Unpack[JobSelection]
    ) -> int:
        """Cancel all live jobs that match the filters, of every app; `worker` means the jobs that it runs. Returns how
        many; running jobs are asked to stop.

        Each chunk is committed: if the call is interrupted, call it again. Jobs that are enqueued meanwhile stay.
        """
        return run_call(
            "cancel_jobs",
            change_jobs("cancel_jobs", cancelling(reason, self._job_store.events), in_queue, which),
            self.database,
        )

    async def acancel_jobs(
        self, in_queue: str | None = None, /, *, reason: str | None = None, **which: Unpack[JobSelection]
    ) -> int:
        """The same as `cancel_jobs`, for async code."""
        return await arun(
            change_jobs("acancel_jobs", cancelling(reason, self._job_store.events), in_queue, which), self.database
        )


def _emit(event: str, key: str | None, value: Any, keep: Duration, sealer: Sealer) -> QueryPlan[None]:
    name = check_name(event, "event")
    checked_key = None if key is None else check_name(key, "key")
    yield queries.events.emit(name, checked_key, encode_event(name, value, sealer), seconds(keep, "keep"))
