"""A handle to one job: wait for its result, read its state, and change it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar
from uuid import UUID

import msgspec

from stepwell.errors import (
    ConfigError,
    JobExists,
    JobNotFound,
    StepNotFound,
    no_such_job,
)
from stepwell.jobs.cancelled import tell_cancelled
from stepwell.jobs.check import check_reason, check_step, encode_event
from stepwell.jobs.codec import Codec
from stepwell.jobs.job_changes import Changes
from stepwell.jobs.options import check_place
from stepwell.jobs.reads import info_of, result_of
from stepwell.jobs.why import aglance, glance, timed_out, why_of
from stepwell.postgres import queries
from stepwell.postgres.query_plan import QueryPlan, arun, rows_of, run, run_call
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.telemetry.enqueue import JobEnqueued
from stepwell.values.bounds import check_name
from stepwell.values.duration import Duration, seconds
from stepwell.values.job import JobInfo
from stepwell.values.why import Why

if TYPE_CHECKING:
    from stepwell.jobs.enqueue import JobStore

R = TypeVar("R", covariant=True)

# The names of these methods in other libraries.
_RESULT = "job.result(timeout=...), in async code await job.aresult(timeout=...)"
_ELSEWHERE = {"get": _RESULT, "wait": _RESULT, "status": "job.info().state", "revoke": "job.cancel()"}


class JobHandle(Generic[R]):
    """One job. `R` is the type that its task returns."""

    __slots__ = ("_codec", "_id", "_store", "inserted")

    def __init__(self, job_id: str, store: JobStore, codec: Codec | None = None, *, inserted: bool = True) -> None:
        self._id = job_id
        self._store = store
        self._codec = codec
        self.inserted = inserted
        """Whether this enqueue made the job; False: it found the job already there."""

    @property
    def id(self) -> UUID:
        """The job's id."""
        return UUID(self._id)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            # Hidden from type checkers: with it they would accept every wrong name.
            hint = f": write {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
            raise AttributeError(f"'JobHandle' object has no attribute {name!r}{hint}")

    def __repr__(self) -> str:
        return f"<JobHandle {self._id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the job to end and return what its handler returned.

        Raises `JobFailed` or `JobCancelled` if the job ended that way, `TimeoutError` if it has not ended in time, and
        `JobNotFound` if the job does not exist or is no longer kept. With or without a `timeout`, raises
        `DatabaseTimeout` if the database has not answered for `App(call_timeout=)`.
        """
        limit = None if timeout is None else seconds(timeout, "timeout")
        refuse_in_event_loop("result", "aresult")
        waiter = self._store.waiter
        future = waiter.wait(self._id)
        try:
            return result_of(waiter.wait_for(future, limit), self._codec, self._store.sealer)
        except TimeoutError:
            raise timed_out(self._id, limit, glance(self._id, self._store)) from None
        finally:
            waiter.forget(self._id, future)

    async def aresult(self, timeout: Duration | None = None) -> R:
        """The same as `result`, for async code."""
        limit = None if timeout is None else seconds(timeout, "timeout")
        waiter = self._store.waiter
        future = waiter.wait(self._id)
        try:
            return result_of(await waiter.await_for(future, limit), self._codec, self._store.sealer)
        except TimeoutError:
            raise timed_out(self._id, limit, await aglance(self._id, self._store)) from None
        finally:
            waiter.forget(self._id, future)

    def changes(self, timeout: Duration | None = None) -> Changes[R]:
        """Watch the job: `async for change in job.changes()`, or in plain code `for change in job.changes()`.

        The first change is the job's present state. Each further one comes when its state, attempt or progress has
        changed, or a step was saved; of quick changes only the newest. The last one has `ended` and the result or the
        error. It does not raise if the job fails.

        Raises `JobNotFound` if the job does not exist, `TimeoutError` if it has not ended within `timeout`, and
        `DatabaseTimeout` as `result` does. Thousands of watched jobs share one connection.
        """
        return Changes(self._id, self._store, self._codec, None if timeout is None else seconds(timeout, "timeout"))

    def info(self) -> JobInfo | None:
        """Read everything about the job; None if it does not exist or is no longer kept."""
        return run_call("info", info_of(self._id, self._store.sealer), self._store.database)

    async def ainfo(self) -> JobInfo | None:
        """The same as `info`, for async code."""
        return await arun(info_of(self._id, self._store.sealer), self._store.database)

    def why(self) -> Why:
        """Say why the job has not ended: it is delayed, its queue is paused, a limit is full, no worker knows its task,
        and so on; and what to do about it."""
        refuse_in_event_loop("why", "awhy")
        return run(why_of(self._id), self._store.database)

    async def awhy(self) -> Why:
        """The same as `why`, for async code."""
        return await arun(why_of(self._id), self._store.database)

    def exists(self) -> bool:
        """Whether the job exists, live or finished and still kept."""
        return run_call("exists", rows_of(queries.reads.job_exists(self._id)), self._store.database)[0]

    async def aexists(self) -> bool:
        """The same as `exists`, for async code."""
        return (await self._store.database.afetch(queries.reads.job_exists(self._id)))[0]

    def cancel(self, reason: str | None = None, *, connection: object | None = None) -> bool:
        """Cancel the job: at once if it is not running, else its worker is asked to stop it. False: it has ended. With
        `connection`, it is cancelled if and only if your transaction commits."""
        return run_call("cancel", self._cancel(reason), self._store.database, connection)

    async def acancel(self, reason: str | None = None, *, connection: object | None = None) -> bool:
        """The same as `cancel`, for async code."""
        return await arun(self._cancel(reason), self._store.database, connection)

    def _cancel(self, reason: str | None) -> QueryPlan[bool]:
        cancelled = yield queries.jobs.cancel([self._id], check_reason(reason))
        tell_cancelled(self._store.events, cancelled, reason)
        return bool(cancelled)

    def retry(self, *, step: str | None = None, from_start: bool = False, input: Any = msgspec.UNSET) -> bool:  # noqa: A002
        """Run a failed or cancelled job again under the same id, with fresh attempts. A job that waits for its next
        attempt runs now. False: the job is running, is already ready, or has succeeded. Raises `JobExists` if another
        job has its unique key.

        A durable job continues where it stopped. With `step` it goes back to that step, and with `from_start` it starts
        over. A job whose steps were compensated always starts over.

        With `input`, a chain continues at any of its steps with that value as the step's input, and a machine in any of
        its states: `retry(input=Active("ada"))`. Raises `BadArgs` if the value does not fit.
        """
        return run_call("retry", self._retry(step, from_start, input), self._store.database)

    async def aretry(
        self,
        *,
        step: str | None = None,
        from_start: bool = False,
        input: Any = msgspec.UNSET,  # noqa: A002
    ) -> bool:
        """The same as `retry`, for async code."""
        return await arun(self._retry(step, from_start, input), self._store.database)

    def _retry(self, step: str | None, from_start: bool, value: Any) -> QueryPlan[bool]:
        step = None if step is None else check_step(step)
        given: str | None = None
        if from_start and (step is not None or value is not msgspec.UNSET):
            raise ConfigError(f"{'input' if step is None else 'step'} and from_start exclude each other: give one")
        if value is not msgspec.UNSET:
            entered = self._store.task((yield from self._find_task())).enter(step, value)
            step, given = entered.name, entered.input
        try:
            retried = (yield queries.jobs.retry([self._id], step, from_start=from_start, input=given))[0]
        except StepNotFound as error:
            task = self._store.tasks.get((yield from self._find_task()))
            if step is not None and task is not None and task.find(step) is not None:
                raise StepNotFound(
                    f"job {self._id} has not reached {step!r} yet: give that step its input, "
                    f"retry(step={step!r}, input=...)"
                ) from error
            raise
        if not retried:
            [holder] = yield queries.jobs.key_holder(self._id)
            if holder is not None:
                exists = JobExists(f"job {self._id} cannot be retried: job {holder} has its unique key", str(holder))
                exists.job = JobHandle(str(holder), self._store, inserted=False)
                raise exists
        return bool(retried)

    def run_now(self) -> bool:
        """Run a job that waits for its time as soon as a worker is free: a job that was enqueued with a delay, that
        waits for its next attempt or that of a step, or a chain or machine that waits before its next step. The
        priority does not change.

        False: the job is ready or running, it has ended (`retry` runs it again), it is a run of a schedule that waits
        for the run before, or it sleeps or waits for an event or a child, which is part of its work.
        """
        return run_call("run_now", self._run_now(), self._store.database)

    async def arun_now(self) -> bool:
        """The same as `run_now`, for async code."""
        return await arun(self._run_now(), self._store.database)

    def _run_now(self) -> QueryPlan[bool]:
        made_ready = (yield queries.jobs.run_now([self._id]))[0]
        if not made_ready:
            yield from self._find_task()
        return bool(made_ready)

    def edit_args(self, *args: Any, **kwargs: Any) -> bool:
        """Replace all arguments of a job, given as to `enqueue`. The job must not have begun, or must wait for its next
        attempt; a failed or cancelled job runs with the new arguments after `retry`. Raises `BadArgs` if they do not
        fit the task's signature.

        False: the job is running, is suspended in the middle of its work, or has succeeded. A chain or machine that has
        left its first step uses its arguments only if it starts over: give a step its input with `retry`.
        """
        return run_call("edit_args", self._edit_args(args, kwargs), self._store.database)

    async def aedit_args(self, *args: Any, **kwargs: Any) -> bool:
        """The same as `edit_args`, for async code."""
        return await arun(self._edit_args(args, kwargs), self._store.database)

    def _edit_args(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> QueryPlan[bool]:
        task = self._store.task((yield from self._find_task()))
        encoded = task.codec.encode_args(args, kwargs, self._store.max_args_size)
        return bool((yield queries.jobs.edit_args([self._id], [encoded]))[0])

    def delete(self) -> bool:
        """Delete a job that has ended, with its steps, failures and signals. False: it is live (`cancel` it first), or
        there is no such job."""
        return run_call("delete", self._delete(), self._store.database)

    async def adelete(self) -> bool:
        """The same as `delete`, for async code."""
        return await arun(self._delete(), self._store.database)

    def _delete(self) -> QueryPlan[bool]:
        return bool((yield queries.jobs.delete([self._id]))[0])

    def move(self, *, queue: str | None = None, priority: int | None = None, run_at: datetime | None = None) -> bool:
        """Move a job that does not run: to another queue, priority or time. False: it is running, is suspended in the
        middle of its work, or has ended; or it is to run at another time, but waits in a line of its limits."""
        return run_call("move", self._move(queue, priority, run_at), self._store.database)

    async def amove(
        self, *, queue: str | None = None, priority: int | None = None, run_at: datetime | None = None
    ) -> bool:
        """The same as `move`, for async code."""
        return await arun(self._move(queue, priority, run_at), self._store.database)

    def _move(self, queue: str | None, priority: int | None, run_at: datetime | None) -> QueryPlan[bool]:
        check_place(queue, priority, run_at)
        moved = (yield queries.jobs.move([self._id], queue, priority, run_at))[0]
        if not moved:
            yield from self._find_task()
        return bool(moved)

    def _find_task(self) -> QueryPlan[str]:
        found = yield queries.reads.task_of(self._id)
        if not found:
            raise no_such_job(self._id)
        return found[0]

    def send(self, name: str, value: Any = None, *, connection: object | None = None) -> None:
        """Send a signal to this job, which receives it with `ctx.receive(name)`: in the order sent, each one once.

        Raises `JobNotFound` if the job is not live. With `connection`, the signal is sent if and only if your
        transaction commits.
        """
        run_call("send", self._send(name, value), self._store.database, connection)

    async def asend(self, name: str, value: Any = None, *, connection: object | None = None) -> None:
        """The same as `send`, for async code."""
        await arun(self._send(name, value), self._store.database, connection)

    def _send(self, name: str, value: Any) -> QueryPlan[None]:
        [sent] = yield queries.events.send(
            self._id, check_name(name, "name"), encode_event(name, value, self._store.sealer)
        )
        if not sent:
            raise JobNotFound(f"job {self._id} is not live: it has ended or never existed, so it receives no signals")


def fork(job: JobHandle[R], step: str) -> QueryPlan[JobHandle[R]]:
    """Make a new job of the same task that starts with what the job had saved before a step."""
    job_id, store, codec = job._id, job._store, job._codec  # pyright: ignore[reportPrivateUsage]
    [forked] = yield queries.jobs.fork(job_id, check_step(step))
    if forked is None:
        raise no_such_job(job_id)
    made: JobHandle[R] = JobHandle(str(forked), store, codec)
    yield from tell_enqueued(made, in_transaction=False)
    return made


def tell_enqueued(job: JobHandle[Any], *, in_transaction: bool) -> QueryPlan[None]:
    """Tell subscribers of a job that the database has made of what it knows: a fork, or a run of a schedule."""
    job_id, events = job._id, job._store.events  # pyright: ignore[reportPrivateUsage]
    if events.wanted(JobEnqueued):
        for task, queue in (yield queries.reads.task_and_queue(job_id)):
            events.emit(JobEnqueued(job_id, task, queue, 0, in_transaction=in_transaction))
