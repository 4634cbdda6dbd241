"""Tasks whose function takes several jobs at once, as `@app.task(batch=...)` makes them.

A job is enqueued with one element of the list that the function takes. Calling the task calls its function, with a
list. (There is an overload for each way to write the result, because list is invariant.)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar, overload

import msgspec

from stepwell.errors import ConfigError
from stepwell.jobs.batch_codec import BatchCodec
from stepwell.jobs.callable_task import TaskDecorator
from stepwell.jobs.enqueue import JobStore
from stepwell.jobs.task import Task
from stepwell.values.bounds import check_whole
from stepwell.values.duration import Duration, describe, seconds

Item = TypeVar("Item")
R = TypeVar("R", covariant=True)
Returned = TypeVar("Returned", covariant=True)
Result = TypeVar("Result")

# A worker holds some three thousand jobs that wait to run. A batch must be able to fill up among them.
_LARGEST = 1000
_LONGEST_WAIT = 60.0
_DEFAULT_WAIT = 0.05


class Batching(msgspec.Struct, frozen=True):
    """How many jobs share a call, and how many seconds a batch waits for its last one."""

    size: int
    wait: float


class BatchTask(Task[[Item], R]):
    """A task whose function takes a list. A job is one element of it."""

    codec: BatchCodec  # pyright: ignore[reportIncompatibleVariableOverride]


class AsyncBatchTask(BatchTask[Item, R], Generic[Item, R, Returned]):
    """A task of an `async def` that takes a list. `await task([...])` calls the function here."""

    fn: Callable[[list[Item]], Coroutine[object, None, Returned]]

    async def __call__(self, items: list[Item], /) -> Returned:
        positional, named = self.codec.arguments_for(items)
        return await self.fn(*positional, **named)


class SyncBatchTask(BatchTask[Item, R], Generic[Item, R, Returned]):
    """A task of a plain function that takes a list. `task([...])` calls the function here."""

    fn: Callable[[list[Item]], Returned]

    def __call__(self, items: list[Item], /) -> Returned:
        positional, named = self.codec.arguments_for(items)
        return self.fn(*positional, **named)


class BatchTaskDecorator(TaskDecorator, Protocol):
    """The decorator that `@app.task(batch=...)` returns. It is said to be a `TaskDecorator` because pyright then takes
    `@app.task(**options)`, with a dict that could hold `batch`, for one."""

    @overload  # type: ignore[override]
    def __call__(
        self, fn: Callable[[list[Item]], Coroutine[Any, Any, list[Result | Exception]]], /
    ) -> AsyncBatchTask[Item, Result, list[Result | Exception]]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[Item]], Coroutine[Any, Any, list[Result | BaseException]]], /
    ) -> AsyncBatchTask[Item, Result, list[Result | BaseException]]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[Item]], Coroutine[Any, Any, list[Result]]], /
    ) -> AsyncBatchTask[Item, Result, list[Result]]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[Item]], Coroutine[Any, Any, None]], /
    ) -> AsyncBatchTask[Item, None, None]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[Item]], list[Result | Exception]], /
    ) -> SyncBatchTask[Item, Result, list[Result | Exception]]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[Item]], list[Result | BaseException]], /
    ) -> SyncBatchTask[Item, Result, list[Result | BaseException]]: ...
    @overload
    def __call__(self, fn: Callable[[list[Item]], list[Result]], /) -> SyncBatchTask[Item, Result, list[Result]]: ...
    @overload
    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, fn: Callable[[list[Item]], None], /
    ) -> SyncBatchTask[Item, None, None]: ...


def check_batch(batch: int | None, wait: Duration | None) -> Batching | None:
    """Return how a task gathers batches, as `batch=` and `batch_wait=` say; None: it does not."""
    if batch is None:
        if wait is not None:
            raise ConfigError(f"batch_wait is {wait!r}, but there is no batch= that could wait")
        return None
    size = check_whole(batch, "batch", 1, _LARGEST)
    waits = _DEFAULT_WAIT if wait is None else seconds(wait, "batch_wait")
    if waits > _LONGEST_WAIT:
        raise ConfigError(f"batch_wait is {describe(waits)}: it must be at most {describe(_LONGEST_WAIT)}")
    return Batching(size, waits)


def new_batch_task(
    job_store: JobStore, fn: Callable[..., Any], name: str, *, batching: Batching, **options: Any
) -> Task[..., Any]:
    kind: Any = AsyncBatchTask if inspect.iscoroutinefunction(fn) else SyncBatchTask
    codec = BatchCodec(name, fn)
    return kind(job_store, fn, name=name, codec=codec, batch=batching.size, batch_wait=batching.wait, **options)
