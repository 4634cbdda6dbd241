"""Run handlers inline: an enqueue calls the handler, in this process and without a database.

Arguments and results are encoded and decoded as for a worker, so what cannot be stored fails here, too.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import uuid4

from stepwell.app import App
from stepwell.errors import ConfigError
from stepwell.jobs.batch_task import BatchTask
from stepwell.jobs.enqueue import JobStore
from stepwell.jobs.enqueuer import Call
from stepwell.jobs.handle import JobHandle
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.testing.unit_context import context, sync_context
from stepwell.values.duration import Duration
from stepwell.values.json import LARGEST_VALUE

R = TypeVar("R", covariant=True)


class EagerHandle(JobHandle[R]):
    """A handle to a job that has run already, inline. It is in no database."""

    __slots__ = ("_result",)

    def __init__(self, store: JobStore, result: R) -> None:
        super().__init__(str(uuid4()), store)
        self._result = result

    def result(self, timeout: Duration | None = None) -> R:  # noqa: ARG002
        """What the handler returned."""
        return self._result

    async def aresult(self, timeout: Duration | None = None) -> R:  # noqa: ARG002
        """The same as `result`, for async code."""
        return self._result


@contextmanager
def eager(app: App, *, resources: Iterable[object] = ()) -> Generator[None]:
    """Within this block, `enqueue`, `enqueue_many` and their async twins of the app's tasks call the handler at once.
    What it raises is raised there. There are no retries, delays, limits or unique keys, and waits end at once: see
    `context`. `resources` are what handlers ask for."""
    # A Django site has two stores: one for Django's tasks, one for the tasks of the app.
    stores = {task.job_store for task in app.tasks.values()}
    if not stores:
        raise ConfigError("the app has no tasks: import the modules that define them before eager(app)")
    given = list(resources)

    async def aenqueue(call: Call[Any], connection: object | None) -> JobHandle[Any]:  # noqa: ARG001
        return EagerHandle(call.task.job_store, await _run(call, given))

    def enqueue(call: Call[Any], connection: object | None) -> JobHandle[Any]:
        refuse_in_event_loop("enqueue", "aenqueue")
        return asyncio.run(_awaited(aenqueue(call, connection)))

    async def aenqueue_many(calls: Iterable[Call[Any]], connection: object | None) -> list[JobHandle[Any]]:
        # All are checked before any runs, as they would be.
        return [await aenqueue(call, connection) for call in list(calls)]

    def enqueue_many(calls: Iterable[Call[Any]], connection: object | None) -> list[JobHandle[Any]]:
        refuse_in_event_loop("enqueue_many", "aenqueue_many")
        return [enqueue(call, connection) for call in list(calls)]

    replaced = {each.__name__: each for each in (enqueue, aenqueue, enqueue_many, aenqueue_many)}
    for store in stores:
        vars(store).update(replaced)
    try:
        yield
    finally:
        for store in stores:
            for name in replaced:
                vars(store).pop(name, None)


async def _awaited(made: Any) -> Any:
    return await made


async def _run(call: Call[Any], resources: list[object]) -> Any:
    task, args = call.task, call.job.args
    codec = task.codec
    if task.flow is not None:
        raise ConfigError(f"{task.name!r} is a chain or a machine, which eager cannot run: use a worker, or drain")
    named: dict[str, Any]
    if isinstance(task, BatchTask):
        positional, named = task.codec.arguments_for([task.codec.decode_item(args)])
    else:
        positional, named = codec.decode_args(args)
    is_async = task.kind == "async"
    ctx = context(task.name, resources=resources) if is_async else sync_context(task.name, resources=resources)
    if codec.context_parameter is not None:
        named[codec.context_parameter] = ctx
    named |= {name: ctx.resource(kind) for name, kind in codec.injected.items()}
    # A plain handler runs in a thread, as in a worker: it may enqueue jobs itself.
    result = await task.fn(*positional, **named) if is_async else await asyncio.to_thread(task.fn, *positional, **named)
    if inspect.iscoroutine(result):
        result.close()
        raise ConfigError(f"task {task.name!r} returned a coroutine: declare it as 'async def'")
    if isinstance(task, BatchTask):
        [result] = [None] if task.codec.returns_nothing else result
        if isinstance(result, BaseException):
            raise result
    return codec.decode_result(codec.encode_result(result, LARGEST_VALUE))
