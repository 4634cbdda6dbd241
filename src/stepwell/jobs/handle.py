"""A handle to one job: wait for its result, look it up, cancel it, try it again."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

import msgspec
import psycopg

from stepwell.error_text import error_line
from stepwell.errors import (
    BadArgs,
    BadValue,
    ConfigError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    StepNotFound,
    StepwellError,
    no_such_job,
)
from stepwell.jobs.codec import Codec
from stepwell.jobs.waiter import Waiter
from stepwell.postgres import queries
from stepwell.postgres.callers_connection import afetch_on, fetch_on
from stepwell.postgres.database import Database
from stepwell.postgres.queries import Query
from stepwell.postgres.query_plan import Plan, arun, run
from stepwell.values.duration import Duration, describe, seconds
from stepwell.values.job import Ended, JobInfo
from stepwell.values.json import LARGEST_VALUE, encode_value
from stepwell.values.names import check_name

R = TypeVar("R", covariant=True)

_LONGEST_REASON = 10_000
_LONGEST_SHOWN = 100


class ArgsEncoder(Protocol):
    """What a handle needs of its app: arguments as JSON, by the task that the job is of."""

    def encode_args(self, task: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str: ...

    def encode_input(self, task: str, step: str | None, value: Any) -> tuple[str, str]:
        """The name of the step, and what it is given."""
        ...

    def has_step(self, task: str, step: str) -> bool:
        """Whether the task is known to be a chain with this step, or a machine with this state."""
        ...


class JobHandle(Generic[R]):
    """One job. `R` is what its task returns."""

    __slots__ = ("_codec", "_database", "_encoder", "_id", "_waiter", "inserted")

    def __init__(
        self,
        job_id: str,
        database: Database,
        waiter: Waiter,
        codec: Codec | None = None,
        *,
        encoder: ArgsEncoder,
        inserted: bool = True,
    ) -> None:
        self._id = job_id
        self.inserted = inserted
        """Whether this enqueue made the job, and did not find it already there."""
        self._database = database
        self._waiter = waiter
        self._codec = codec
        self._encoder = encoder

    @property
    def id(self) -> UUID:
        """The job's id."""
        return UUID(self._id)

    def __repr__(self) -> str:
        return f"<JobHandle {self._id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the job to end and return what its handler returned.

        Raises `JobFailed` or `JobCancelled` if it ended so, `TimeoutError` if it has not ended in time, and
        `JobNotFound` if there is no such job (any more). With and without a `timeout` it raises `DatabaseTimeout` when
        the database has not answered for `App(call_timeout=)`.
        """
        key = self._id
        limit = None if timeout is None else seconds(timeout, "timeout")
        refuse_in_event_loop("result", "aresult")
        future = self._waiter.wait(key)
        try:
            return self._unwrap(self._waiter.ended(future, limit))
        except TimeoutError:
            raise TimeoutError(_timed_out(key, limit, self._glance())) from None
        finally:
            self._waiter.forget(key, future)

    async def aresult(self, timeout: Duration | None = None) -> R:
        """The same as `result`, for async code."""
        key = self._id
        limit = None if timeout is None else seconds(timeout, "timeout")
        future = self._waiter.wait(key)
        try:
            return self._unwrap(await self._waiter.aended(future, limit))
        except TimeoutError:
            raise TimeoutError(_timed_out(key, limit, await self._aglance())) from None
        finally:
            self._waiter.forget(key, future)

    def info(self) -> JobInfo | None:
        """All that is known of the job now; None if there is no such job (any more)."""
        refuse_in_event_loop("info", "ainfo")
        found = self._database.fetch(queries.info(self._id))
        if not found:
            return None
        return replace(
            found[0],
            failures=tuple(self._database.fetch(queries.failures(self._id))),
            steps=tuple(self._database.fetch(queries.steps(self._id))),
        )

    async def ainfo(self) -> JobInfo | None:
        """The same as `info`, for async code."""
        found = await self._database.afetch(queries.info(self._id))
        if not found:
            return None
        return replace(
            found[0],
            failures=tuple(await self._database.afetch(queries.failures(self._id))),
            steps=tuple(await self._database.afetch(queries.steps(self._id))),
        )

    def exists(self) -> bool:
        """Whether there is such a job, live or finished and still kept."""
        refuse_in_event_loop("exists", "aexists")
        return self._database.fetch(queries.job_exists(self._id))[0]

    async def aexists(self) -> bool:
        """The same as `exists`, for async code."""
        return (await self._database.afetch(queries.job_exists(self._id)))[0]

    def _glance(self) -> JobInfo | None:
        """How things stand, for a message: not worth waiting for."""
        info: JobInfo | None = None
        if not self._waiter.hears:
            return None
        with contextlib.suppress(StepwellError, psycopg.Error):
            info = next(iter(self._database.fetch(queries.info(self._id), within=1)), None)
            if info is not None and info.attempt > 0:
                info = replace(info, failures=tuple(self._database.fetch(queries.failures(self._id), within=1)))
        return info

    async def _aglance(self) -> JobInfo | None:
        info: JobInfo | None = None
        if not self._waiter.hears:
            return None
        with contextlib.suppress(StepwellError, psycopg.Error):
            info = next(iter(await self._database.afetch(queries.info(self._id), within=1)), None)
            if info is not None and info.attempt > 0:
                info = replace(info, failures=tuple(await self._database.afetch(queries.failures(self._id), within=1)))
        return info

    def cancel(self, reason: str | None = None) -> bool:
        """Cancel the job: at once if it waits, else its worker is told to stop it. False: it has already ended."""
        refuse_in_event_loop("cancel", "acancel")
        return bool(self._database.fetch(queries.cancel([self._id], check_reason(reason))))

    async def acancel(self, reason: str | None = None) -> bool:
        """The same as `cancel`, for async code."""
        return bool(await self._database.afetch(queries.cancel([self._id], check_reason(reason))))

    def retry(self, *, step: str | None = None, from_start: bool = False, input: Any = msgspec.UNSET) -> bool:  # noqa: A002
        """Run a failed or cancelled job again under the same id, with fresh attempts; one that waits for its next try,
        now. False: it runs, is ready already, or has succeeded.

        A durable job goes on where it stood. With `step` it goes back to that one, and with `from_start` it begins
        anew; so does one whose steps were undone.

        With `input`, a chain goes on at any of its steps, which is given that value, and a machine at any of its
        states: `retry(input=Active("ada"))`. Raises `BadArgs` if the value does not fit.
        """
        refuse_in_event_loop("retry", "aretry")
        return run(self._retry(step, from_start, input), self._database)

    async def aretry(
        self,
        *,
        step: str | None = None,
        from_start: bool = False,
        input: Any = msgspec.UNSET,  # noqa: A002
    ) -> bool:
        """The same as `retry`, for async code."""
        return await arun(self._retry(step, from_start, input), self._database)

    def _retry(self, step: str | None, from_start: bool, value: Any) -> Plan[bool]:
        step = None if step is None else check_step(step)
        given: str | None = None
        if from_start and (step is not None or value is not msgspec.UNSET):
            raise ConfigError(f"{'input' if step is None else 'step'} and from_start exclude each other: give one")
        if value is not msgspec.UNSET:
            step, given = self._encoder.encode_input((yield from self._find_task()), step, value)
        try:
            return bool((yield queries.retry([self._id], step, from_start=from_start, input=given))[0])
        except StepNotFound as error:
            if step is not None and self._encoder.has_step((yield from self._find_task()), step):
                raise StepNotFound(
                    f"job {self._id} has not come to {step!r} yet: give it what that step takes, "
                    f"retry(step={step!r}, input=...)"
                ) from error
            raise

    def run_now(self) -> bool:
        """Have a job that waits for its time run as soon as a worker is free: one that was enqueued with a delay, that
        waits for its next attempt or that of a step, or a chain or machine that waits before its next step. Its
        priority stays.

        False: it is ready or runs already, it has ended (`retry` runs it again), it is a run of a schedule that waits
        for the one before, or it sleeps or waits for an event or a child, which belongs to its work.
        """
        refuse_in_event_loop("run_now", "arun_now")
        return run(self._run_now(), self._database)

    async def arun_now(self) -> bool:
        """The same as `run_now`, for async code."""
        return await arun(self._run_now(), self._database)

    def _run_now(self) -> Plan[bool]:
        made = (yield queries.run_now([self._id]))[0]
        if not made:
            yield from self._find_task()
        return bool(made)

    def edit_args(self, *args: Any, **kwargs: Any) -> bool:
        """Give a job other arguments, all of them, as to `enqueue`: one that has not begun or waits for its next
        attempt, or one that has failed or was cancelled, to be run with them by `retry`. Raises `BadArgs` if they do
        not fit the task's signature.

        False: it runs, waits in the middle of its work, or has succeeded. A chain or machine that has left its first
        step needs them only if it begins anew: give a step its input by `retry`.
        """
        refuse_in_event_loop("edit_args", "aedit_args")
        return run(self._edit_args(args, kwargs), self._database)

    async def aedit_args(self, *args: Any, **kwargs: Any) -> bool:
        """The same as `edit_args`, for async code."""
        return await arun(self._edit_args(args, kwargs), self._database)

    def _edit_args(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan[bool]:
        encoded = self._encoder.encode_args((yield from self._find_task()), args, kwargs)
        return bool((yield queries.edit_args([self._id], [encoded]))[0])

    def _find_task(self) -> Plan[str]:
        found = yield queries.task_of(self._id)
        if not found:
            raise no_such_job(self._id)
        return found[0]

    def send(self, name: str, value: Any = None, *, connection: object | None = None) -> None:
        """Send something to this job, which takes it by `ctx.receive(name)`: what is sent first is taken first, once.

        Raises `JobNotFound` if the job is not live. With `connection`, if and only if your transaction commits.
        """
        refuse_in_event_loop("send", "asend")
        query = _send(self._id, name, value)
        self._check_sent((self._database.fetch(query) if connection is None else fetch_on(connection, query))[0])

    async def asend(self, name: str, value: Any = None, *, connection: object | None = None) -> None:
        """The same as `send`, for async code."""
        query = _send(self._id, name, value)
        sent = await self._database.afetch(query) if connection is None else await afetch_on(connection, query)
        self._check_sent(sent[0])

    def _check_sent(self, sent: bool) -> None:
        if not sent:
            raise JobNotFound(f"job {self._id} is not live: it has ended, or was never there, and can be sent nothing")

    def same_task(self, job_id: str) -> JobHandle[R]:
        """A handle to another job of the same task."""
        return JobHandle(job_id, self._database, self._waiter, self._codec, encoder=self._encoder)

    def _unwrap(self, ended: Ended) -> Any:
        if ended.state == "succeeded":
            if self._codec is not None:
                try:
                    return self._codec.decode_result(ended.result)
                except msgspec.ValidationError as error:
                    raise StepwellError(
                        f"the result of job {ended.id} ({ended.task}) does not fit its return annotation: {error}; "
                        "app.job(id) gives it as plain JSON values"
                    ) from None
            return None if ended.result is None else msgspec.json.decode(ended.result)
        task = ended.task or "unknown task"
        if ended.state == "failed":
            # Where no row of the failure is kept, its line is all that is left.
            message = ended.error if ended.message is None else ended.message
            raise JobFailed(ended.id, task, ended.type or "Error", message or "", ended.traceback)
        if ended.state == "cancelled":
            raise JobCancelled(ended.id, task, ended.error)
        raise no_such_job(ended.id)


def to_job_id(job: JobInfo | UUID | str) -> str:
    """A job's id as queries take it."""
    job_id = job.id if isinstance(job, JobInfo) else job
    try:
        return str(job_id if isinstance(job_id, UUID) else UUID(job_id))
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(f"{repr(job_id)[:_LONGEST_SHOWN]} is not a job's id: give a uuid") from None


def _send(job_id: str, name: str, value: Any) -> Query[bool]:
    return queries.send(job_id, check_name(name, "name"), encode_event(name, value))


def encode_event(name: str, value: Any) -> str:
    """The value of an event as JSON. Raises `BadArgs` if it cannot be stored."""
    try:
        return encode_value(value, LARGEST_VALUE, "an event", "event {!r} has", name)
    except BadValue as error:
        raise BadArgs(str(error)) from None


def check_step(step: str) -> str:
    """The name of a step, if one could have it."""
    if not isinstance(step, str) or "\0" in step or not _encodes(step):
        raise ConfigError(f"step is {step!r}: it must be text, without NUL; info().steps lists those of a job")
    return step


def check_reason(reason: str | None) -> str | None:
    """A reason for a cancel that Postgres can keep."""
    if reason is not None and (not isinstance(reason, str) or "\0" in reason or not _encodes(reason)):
        raise BadArgs(f"reason is {reason!r}: it must be text, without NUL")
    if reason is not None and len(reason) > _LONGEST_REASON:
        raise BadArgs(f"reason has {len(reason)} characters: it may have {_LONGEST_REASON}")
    return reason


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse_in_event_loop(name: str, instead: str) -> None:
    """Raise if a blocking call would stop the event loop that runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError(f"{name}() would block the running event loop: await {instead}() instead")


def _timed_out(job_id: str, limit: float | None, info: JobInfo | None) -> str:
    said = f"job {job_id} has not ended within {describe(limit or 0)}"
    if info is None:
        return said
    if info.state == "ready":
        return f"{said}: {info.task!r} is ready in queue {info.queue!r}; does a worker run that task and queue?"
    said = f"{said}: {info.task!r} is {info.state}, attempt {info.attempt}"
    if not info.failures:
        return said
    last = info.failures[-1]
    return f"{said}; attempt {last.attempt} failed: {error_line(last.type, last.message)}"
