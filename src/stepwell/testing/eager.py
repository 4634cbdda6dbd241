"""Run handlers inline: an enqueue calls the handler, in this process and without a database.

Arguments and results are encoded and decoded as for a worker, so what cannot be stored fails here, too.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from uuid import uuid4

from stepwell.app import App
from stepwell.errors import ConfigError
from stepwell.jobs.batch_task import BatchTask
from stepwell.jobs.enqueue import JobStore
from stepwell.jobs.enqueuer import Call, Enqueuer, check_calls
from stepwell.jobs.group import Group, callback_of
from stepwell.jobs.handle import JobHandle
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.testing.unit_context import context, sync_context
from stepwell.values.duration import Duration
from stepwell.values.group import GroupSummary
from stepwell.values.json import LARGEST_VALUE

R = TypeVar("R", covariant=True)

_REFUSED = (
    "this call needs the database, which eager(app) does without: it only runs the handlers of enqueued jobs and of "
    "groups. Test this on a database instead, with drain(app) or the fixture drain"
)


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


class EagerGroup(Group[R]):
    """A group whose members have run already, inline. It is in no database."""

    __slots__ = ("_summary",)

    def __init__(self, store: JobStore, summary: GroupSummary, then: JobHandle[R] | None) -> None:
        super().__init__(str(summary.id), store, then)
        self._summary = summary

    def result(self, timeout: Duration | None = None) -> GroupSummary:  # noqa: ARG002
        """The summary."""
        return self._summary

    async def aresult(self, timeout: Duration | None = None) -> GroupSummary:  # noqa: ARG002
        """The same as `result`, for async code."""
        return self._summary


@contextmanager
def eager(app: App, *, resources: Iterable[object] = ()) -> Generator[None]:
    """Within this block, `enqueue`, `enqueue_many`, `app.group` and their async twins call the handlers at once. What
    they raise is raised there. There are no retries, delays, limits or unique keys, and waits end at once: see
    `context`. `resources` are what handlers ask for. Any other call that needs the database raises `ConfigError`."""
    # A Django site has two stores: one for Django's tasks, one for the tasks of the app.
    stores = {task.job_store for task in app.tasks.values()}
    if not stores:
        raise ConfigError("the app has no tasks: import the modules that define them before eager(app)")
    some_store, given = next(iter(stores)), list(resources)

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

    async def agroup(
        calls: Iterable[Call[Any]], *, then: Enqueuer[..., Any] | None = None, connection: object | None = None
    ) -> Group[Any]:
        members = list(check_calls(list(calls), "app.group"))
        summary = GroupSummary(uuid4(), len(members), len(members), 0, 0)
        callback = None if then is None else callback_of(then, summary)[0]
        await aenqueue_many(members, connection)
        ran = None if callback is None else await aenqueue(callback, connection)
        return EagerGroup(some_store, summary, ran)

    def group(
        calls: Iterable[Call[Any]], *, then: Enqueuer[..., Any] | None = None, connection: object | None = None
    ) -> Group[Any]:
        refuse_in_event_loop("group", "agroup")
        return asyncio.run(agroup(calls, then=then, connection=connection))

    replaced = {each.__name__: each for each in (enqueue, aenqueue, enqueue_many, aenqueue_many)}
    with ExitStack() as stack:
        stack.enter_context(_replacing(app, group=group, agroup=agroup))
        for store in stores:
            stack.enter_context(_replacing(store, **replaced))
        for database in {app.database, *(store.database for store in stores)}:
            stack.enter_context(_replacing(database, refusal=_REFUSED))
        yield


@contextmanager
def _replacing(owner: object, **replaced: Any) -> Generator[None]:
    """Replace methods or values of one object, and restore at the end what was there: blocks may be nested."""
    attributes = vars(owner)
    before = {name: attributes[name] for name in replaced if name in attributes}
    attributes.update(replaced)
    try:
        yield
    finally:
        for name in replaced:
            attributes.pop(name, None)
        attributes.update(before)


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
