"""Watch one job: turn its snapshots into changes. The waiter finds the snapshots."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from uuid import UUID

import msgspec

from stepwell.errors import no_such_job
from stepwell.jobs.codec import Codec
from stepwell.jobs.reads import decoded_result
from stepwell.jobs.why import aglance, glance, timed_out
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.values.change import JobChange, JobProgress, JobSnapshot
from stepwell.values.sealing import Sealer
from stepwell.values.step import StepInfo

if TYPE_CHECKING:
    from stepwell.jobs.enqueue import JobStore

R = TypeVar("R", covariant=True)


class Changes(Generic[R]):
    """The changes of a job until it has ended. Made by `handle.changes()`; iterate over it with `async for` or `for`.
    Each iteration starts from the present state."""

    def __init__(self, job_id: str, store: JobStore, codec: Codec | None, limit: float | None) -> None:
        self._id = job_id
        self._store = store
        self._codec = codec
        self._limit = limit

    async def __aiter__(self) -> AsyncGenerator[JobChange[R]]:
        async with contextlib.aclosing(self.abeats(None)) as beats:
            async for change in beats:
                if change is not None:
                    yield change

    def __iter__(self) -> Generator[JobChange[R]]:
        refuse_in_event_loop("for ... in job.changes", "async for ... in job.changes")
        with contextlib.closing(self.beats(None)) as beats:
            for change in beats:
                if change is not None:
                    yield change

    async def abeats(self, every: float | None) -> AsyncGenerator[JobChange[R] | None]:
        """Yield the changes, and None whenever there was none for `every` seconds."""
        view = _View(self._id, self._codec, self._store.sealer, self._limit)
        waiter = self._store.waiter
        watch = waiter.watch(self._id)
        try:
            while not view.ended:
                try:
                    snapshot = await waiter.await_for(waiter.next_state(watch), view.wait(every))
                except TimeoutError:
                    if view.is_over:
                        raise timed_out(self._id, self._limit, await aglance(self._id, self._store)) from None
                    yield None
                else:
                    watch.mark = snapshot.mark
                    yield view.change(snapshot)
        finally:
            waiter.unwatch(watch)

    def beats(self, every: float | None) -> Generator[JobChange[R] | None]:
        """The same as `abeats`, in plain code."""
        view = _View(self._id, self._codec, self._store.sealer, self._limit)
        waiter = self._store.waiter
        watch = waiter.watch(self._id)
        try:
            while not view.ended:
                try:
                    snapshot = waiter.wait_for(waiter.next_state(watch), view.wait(every))
                except TimeoutError:
                    if view.is_over:
                        raise timed_out(self._id, self._limit, glance(self._id, self._store)) from None
                    yield None
                else:
                    watch.mark = snapshot.mark
                    yield view.change(snapshot)
        finally:
            waiter.unwatch(watch)


class _View:
    """What one caller has seen of a job."""

    def __init__(self, job_id: str, codec: Codec | None, sealer: Sealer, limit: float | None) -> None:
        self._id = job_id
        self._codec = codec
        self._sealer = sealer
        self._deadline = None if limit is None else time.monotonic() + limit
        self._steps: dict[str, StepInfo] = {}
        self.ended = False

    @property
    def is_over(self) -> bool:
        """Whether the time of the caller is up."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    def wait(self, every: float | None) -> float | None:
        """How long to wait for the next state, in seconds."""
        if self._deadline is None:
            return every
        left = max(0.0, self._deadline - time.monotonic())
        return left if every is None else min(left, every)

    def change(self, snapshot: JobSnapshot) -> JobChange[Any]:
        if snapshot.state is None:
            raise no_such_job(self._id)
        steps = {step.key: step for step in snapshot.steps}
        new = tuple(
            replace(step, value=self._sealer.shown(step.value))
            for key, step in steps.items()
            if self._steps.get(key) != step
        )
        self._steps = steps
        succeeded = snapshot.state == "succeeded"
        task = snapshot.task or "unknown task"
        change: JobChange[Any] = JobChange(
            UUID(self._id),
            str(snapshot.mark),
            snapshot.state,
            snapshot.attempt or 0,
            _progress(snapshot.progress),
            snapshot.cursor,
            new,
            decoded_result(self._id, task, snapshot.result, self._codec, self._sealer) if succeeded else None,
            snapshot.error,
        )
        self.ended = change.ended
        return change


def _progress(value: Any) -> JobProgress | None:
    if not isinstance(value, dict):
        return None
    try:
        return msgspec.convert(cast("dict[str, Any]", value), JobProgress)
    except msgspec.ValidationError:
        return None  # plain SQL may store anything
