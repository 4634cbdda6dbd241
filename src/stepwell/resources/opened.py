"""The resources that a worker, or a process of it, has opened, and how handlers find them."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from stepwell.errors import ConfigError
from stepwell.resources.declared import Resource, Resources, async_in_process
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.worker import ResourceNotClosed

T = TypeVar("T")

# How long a worker that was asked to stop waits for a resource that is still opening.
_OPEN_PATIENCE = 10.0


class Opened(Protocol):
    """Where a handler gets its resources from."""

    def get(self, kind: Any, task: str) -> Any:
        """The resource of this type. Raises `ConfigError` if there is none."""
        ...


# Workers set it before their handlers start, and each handler has a copy of the worker's context.
_opened: ContextVar[Opened | None] = ContextVar("stepwell_resources", default=None)


def use(opened: Opened) -> None:
    """Let handlers that are started from this context get these resources."""
    _opened.set(opened)


def resource(kind: type[T], task: str) -> T:
    """The resource of a type, in a handler."""
    opened = _opened.get()
    if opened is None:
        raise ConfigError(
            f"there is no resource of type {getattr(kind, '__qualname__', kind)} here: workers open the resources of "
            "their app; in a unit test, give the context its resources"
        )
    return opened.get(kind, task)


def injected(wanted: Mapping[str, Any], task: str) -> dict[str, Any]:
    """The resources for the parameters of a function, by their names."""
    return {name: resource(kind, task) for name, kind in wanted.items()}


class WorkerResources:
    """The resources of one run of a worker. `openers` are called at its start, `closers` at its end."""

    def __init__(self, declared: Resources, events: EventBus) -> None:
        self._declared = declared
        self._events = events
        self._values: dict[int, Any] = {}
        self._managers: dict[int, Any] = {}

    @property
    def openers(self) -> list[ResourceHook]:
        return [ResourceHook(one, self._open) for one in self._declared.all]

    @property
    def closers(self) -> list[ResourceHook]:
        return [ResourceHook(one, self._close) for one in self._declared.all]

    def get(self, kind: Any, task: str) -> Any:
        found = self._declared.find(kind)
        if found is None or id(found) not in self._values:
            raise ConfigError(_no_resource(kind, task))
        return self._values[id(found)]

    async def _open(self, one: Resource) -> None:
        _ = one.kind  # raises if its annotation names something unknown
        made = manager = await self._make(one)
        if hasattr(manager, "__aenter__"):
            made = await manager.__aenter__()
            if itself := one.is_itself(manager, made):
                await manager.__aexit__(None, None, None)
        elif hasattr(manager, "__enter__"):
            made, itself = await self._enter_in_thread(one, manager)
        else:
            self._values[id(one)] = made
            return
        if itself:
            # Leaving it may have destroyed it: make another, which is not entered.
            made = await self._make(one)
        else:
            self._managers[id(one)] = manager
        self._values[id(one)] = made

    async def _enter_in_thread(self, one: Resource, manager: Any) -> tuple[Any, bool]:
        entering = asyncio.create_task(asyncio.to_thread(_enter, one, manager))
        try:
            return await asyncio.shield(entering)
        except asyncio.CancelledError:
            # The worker was asked to stop. The thread goes on, and nobody else would leave what it enters.
            await asyncio.wait({entering}, timeout=_OPEN_PATIENCE)
            if not entering.done():
                self._events.emit(ResourceNotClosed(one.name, _OPEN_PATIENCE))
            elif not entering.result()[1]:
                await asyncio.to_thread(manager.__exit__, None, None, None)
            raise

    async def _make(self, one: Resource) -> Any:
        # A plain one in a thread: to load a model, or to open a pool, may take long.
        made: Any = one.make() if one.is_async else await asyncio.to_thread(one.make)
        return await made if inspect.iscoroutine(made) else made

    async def _close(self, one: Resource) -> None:
        manager = self._managers.pop(id(one), None)
        self._values.pop(id(one), None)
        if hasattr(manager, "__aenter__"):
            await manager.__aexit__(None, None, None)
        elif manager is not None:
            await asyncio.to_thread(manager.__exit__, None, None, None)


def _enter(one: Resource, manager: Any) -> tuple[Any, bool]:
    """Enter a context manager. If it is itself the resource, which must not stay entered, leave it again and return
    True. In one thread: a lock is released by the thread that acquired it."""
    made = manager.__enter__()
    itself = one.is_itself(manager, made)
    if itself:
        manager.__exit__(None, None, None)
    return made, itself


class ResourceHook:
    """Opens or closes a resource, as a hook of the worker."""

    def __init__(self, one: Resource, act: Callable[[Resource], Coroutine[Any, Any, None]]) -> None:
        self._one = one
        self._act = act
        self.__module__, _, self.__qualname__ = one.name.rpartition(".")

    def __call__(self) -> Coroutine[Any, Any, None]:
        return self._act(self._one)


class ProcessResources:
    """The resources of a process for tasks with `process=True`: each is opened when a task first needs it, and closed
    when the process ends. A process that is killed closes nothing."""

    def __init__(self, declared: Resources) -> None:
        self._declared = declared
        self._values: dict[int, Any] = {}
        self._stack = ExitStack()
        self._lock = threading.Lock()

    def get(self, kind: Any, task: str) -> Any:
        found = self._declared.find(kind)
        if found is None:
            raise ConfigError(_no_resource(kind, task))
        if found.is_async:
            raise ConfigError(async_in_process(found, task))
        with self._lock:
            if id(found) not in self._values:
                made = manager = found.make()
                if hasattr(manager, "__enter__"):
                    made, itself = _enter(found, manager)
                    if itself:
                        made = found.make()
                    else:
                        self._stack.push(manager)
                self._values[id(found)] = made
        return self._values[id(found)]

    def close(self) -> None:
        self._values.clear()
        self._stack.close()


def _no_resource(kind: Any, task: str) -> str:
    return (
        f"task {task!r} asked for a resource of type {getattr(kind, '__qualname__', kind)}, and no function with "
        "@app.resource makes one"
    )
