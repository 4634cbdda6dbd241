"""A handle to one job: wait for its result, look it up, cancel it, try it again."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec
import psycopg

from stepwell import queries
from stepwell.codec import Codec
from stepwell.db import Database
from stepwell.duration import Duration, describe, seconds
from stepwell.errors import BadArgs, JobCancelled, JobFailed, JobNotFound, StepwellError
from stepwell.job import Ended, JobInfo
from stepwell.waiter import Waiter

R = TypeVar("R", covariant=True)


class JobHandle(Generic[R]):
    """One job. `R` is what its task returns."""

    __slots__ = ("_codec", "_database", "_id", "_waiter", "inserted")

    def __init__(
        self,
        job_id: str,
        database: Database,
        waiter: Waiter,
        codec: Codec | None = None,
        *,
        inserted: bool = True,
    ) -> None:
        self._id = job_id
        self.inserted = inserted
        """Whether this enqueue made the job, and did not find it already there."""
        self._database = database
        self._waiter = waiter
        self._codec = codec

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
        `JobNotFound` if there is no such job (any more).
        """
        key = self._id
        limit = None if timeout is None else seconds(timeout, "timeout")
        refuse_in_event_loop("result", "aresult")
        future = self._waiter.wait(key)
        try:
            return self._unwrap(future.result(limit))
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
            return self._unwrap(await asyncio.wait_for(asyncio.wrap_future(future), limit))
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
        return replace(found[0], failures=tuple(self._database.fetch(queries.failures(self._id))))

    async def ainfo(self) -> JobInfo | None:
        """The same as `info`, for async code."""
        found = await self._database.afetch(queries.info(self._id))
        if not found:
            return None
        return replace(found[0], failures=tuple(await self._database.afetch(queries.failures(self._id))))

    def _glance(self) -> JobInfo | None:
        """How things stand, for a message: not worth waiting for."""
        with contextlib.suppress(StepwellError, psycopg.Error):
            return next(iter(self._database.fetch(queries.info(self._id), within=1)), None)

    async def _aglance(self) -> JobInfo | None:
        with contextlib.suppress(StepwellError, psycopg.Error):
            return next(iter(await self._database.afetch(queries.info(self._id), within=1)), None)

    def cancel(self, reason: str | None = None) -> bool:
        """Cancel the job: at once if it waits, else its worker is told to stop it. False: it has already ended."""
        refuse_in_event_loop("cancel", "acancel")
        return bool(self._database.fetch(queries.cancel([self._id], check_reason(reason))))

    async def acancel(self, reason: str | None = None) -> bool:
        """The same as `cancel`, for async code."""
        return bool(await self._database.afetch(queries.cancel([self._id], check_reason(reason))))

    def retry(self) -> bool:
        """Run a failed or cancelled job again under the same id, with fresh attempts; one that waits for its next try,
        now. False: it runs, is ready already, or has succeeded."""
        refuse_in_event_loop("retry", "aretry")
        return bool(self._database.fetch(queries.retry([self._id]))[0])

    async def aretry(self) -> bool:
        """The same as `retry`, for async code."""
        return bool((await self._database.afetch(queries.retry([self._id])))[0])

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
            raise JobFailed(ended.id, task, ended.type or "Error", ended.message or ended.error or "", ended.traceback)
        if ended.state == "cancelled":
            raise JobCancelled(ended.id, task, ended.error)
        raise JobNotFound(
            f"job {ended.id} is not known: its transaction was not committed, or its history has expired or is not kept"
        )


def check_reason(reason: str | None) -> str | None:
    """A reason for a cancel that Postgres can keep."""
    if reason is not None and (not isinstance(reason, str) or "\0" in reason or not _encodes(reason)):
        raise BadArgs(f"reason is {reason!r}: it must be text, without NUL")
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
    raise StepwellError(f"{name}() would block the running event loop: await {instead}() instead")


def _timed_out(job_id: str, limit: float | None, info: JobInfo | None) -> str:
    said = f"job {job_id} has not ended within {describe(limit or 0)}"
    if info is None:
        return said
    if info.state == "ready":
        return f"{said}: {info.task!r} is ready in queue {info.queue!r}; does a worker run that task and queue?"
    return f"{said}: {info.task!r} is {info.state}, attempt {info.attempt}"
