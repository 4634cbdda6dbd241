"""Contexts for unit tests: handlers run without a worker and without a database.

Steps and branches run as they do in a worker, and nothing is saved. Waits end at once: an event or a signal is taken
from what the test gives, a sleep takes no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn, ParamSpec, TypeVar, cast
from uuid import uuid4

import msgspec

from stepwell.durable.backend import Durability, StepBackend
from stepwell.durable.children import Child, Spawnable, Spawned, check_spawnable, spawn_calls
from stepwell.durable.context import Context
from stepwell.durable.effects import ThreadEffects
from stepwell.durable.run_state import RunState
from stepwell.durable.sync_context import SyncChild, SyncContext
from stepwell.durable.waits import Event
from stepwell.errors import ConfigError
from stepwell.values.change import JobProgress
from stepwell.values.duration import Duration, seconds
from stepwell.values.job import ClaimedJob
from stepwell.values.json import LARGEST_VALUE, encode_value
from stepwell.values.step import NewStep, SavedStep

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class _World:
    """What a test gives to a context, and what the handler did with it."""

    def __init__(
        self, events: Mapping[str, Any], children: Mapping[str, Any], resources: Sequence[object], now: datetime | None
    ) -> None:
        self.events = events
        self.children = children
        self.resources = resources
        self.now = now
        self.slept: list[float] = []
        self.progress: list[JobProgress] = []

    def event(self, name: str, key: str | None, timeout: Duration | None) -> Event:
        if name in self.events:
            return Event(name, key, False, msgspec.json.decode(_encoded(self.events[name], f"event {name!r}")))
        if timeout is not None:
            return Event(name, key, True, None)
        raise AssertionError(f"the handler waits for {name!r} without a timeout: give events={{{name!r}: value}}")

    def child(self, name: str, decode: Callable[[str | None], Any]) -> Spawned:
        if name not in self.children:
            raise AssertionError(f"the handler spawns {name!r}: give children={{{name!r}: result}}")
        value = _encoded(self.children[name], f"child {name!r}").encode()
        saved = SavedStep(name, 1, "child", False, False, False, False, None, None, None, msgspec.Raw(value))
        return Spawned(name, name, decode, saved, str(uuid4()))

    def resource(self, kind: type[T]) -> T:
        for one in self.resources:
            if isinstance(one, kind):
                return one
        raise AssertionError(f"the handler asks for a {kind.__qualname__}: give resources=[...] with one")


class UnitContext(Context):
    """A `Context` for unit tests. `slept` has the sleeps in seconds, `reported` the progress."""

    __slots__ = ("_world",)

    def __init__(self, run: RunState, world: _World) -> None:
        super().__init__(run)
        self._world = world

    @property
    def slept(self) -> list[float]:
        """The sleeps of the handler, in seconds."""
        return self._world.slept

    @property
    def reported(self) -> list[JobProgress]:
        """The progress that the handler has reported."""
        return self._world.progress

    def sleep(self, delay: Duration, *, key: str | None = None) -> Coroutine[object, None, None]:  # noqa: ARG002
        """Note the sleep, and return at once."""
        self._world.slept.append(seconds(delay, "delay"))
        return self._run.track(_return(None))

    def sleep_until(self, at: datetime, *, key: str | None = None) -> Coroutine[object, None, None]:  # noqa: ARG002
        """Note the sleep, and return at once."""
        self._world.slept.append((at - (self._world.now or datetime.now(UTC))).total_seconds())
        return self._run.track(_return(None))

    def wait_for(
        self, event: str, *, key: str | None = None, timeout: Duration | None = None
    ) -> Coroutine[object, None, Event]:
        """Return the event that the test gave; without one, time out."""
        return self._run.track(_return(self._world.event(event, key, timeout)))

    def receive(self, name: str, *, timeout: Duration | None = None) -> Coroutine[object, None, Event]:
        """Return the event that the test gave; without one, time out."""
        return self._run.track(_return(self._world.event(name, None, timeout)))

    def spawn(self, task: Spawnable[P, R], *args: P.args, **kwargs: P.kwargs) -> Child[R]:
        """Check the arguments, and return a child with the result that the test gave."""
        call = check_spawnable(task).call(*args, **kwargs)
        return Child(self._run, self._world.child(call.task.name, call.task.codec.decode_result))

    def spawn_many(self, task: Spawnable[..., R], items: Iterable[Mapping[str, Any] | Any]) -> list[Child[R]]:
        """Check the arguments, and return children with the result that the test gave."""
        calls = spawn_calls(task, items)
        return [Child(self._run, self._world.child(call.task.name, call.task.codec.decode_result)) for call in calls]

    def now(self) -> Coroutine[object, None, datetime]:
        """Return the time that the test gave, or the real one."""
        return self._run.track(_return(self._world.now or datetime.now(UTC)))

    def transaction(self, key: str, sessions: Callable[..., Any] | None = None) -> Any:  # noqa: ARG002
        """Refuse: a transaction needs a database."""
        _no_transaction(key)

    def resource(self, kind: type[T]) -> T:
        """Return the resource that the test gave."""
        return self._world.resource(kind)


class UnitSyncContext(SyncContext):
    """A `SyncContext` for unit tests. `slept` has the sleeps in seconds, `reported` the progress."""

    __slots__ = ("_world",)

    def __init__(self, run: RunState, world: _World) -> None:
        super().__init__(run)
        self._world = world
        self._on_loop = UnitContext(run, world)

    @property
    def slept(self) -> list[float]:
        """The sleeps of the handler, in seconds."""
        return self._world.slept

    @property
    def reported(self) -> list[JobProgress]:
        """The progress that the handler has reported."""
        return self._world.progress

    def spawn(self, task: Spawnable[P, R], *args: P.args, **kwargs: P.kwargs) -> SyncChild[R]:
        """Check the arguments, and return a child with the result that the test gave."""
        return SyncChild(self, self._on_loop.spawn(task, *args, **kwargs))

    def transaction(self, key: str, sessions: Callable[..., Any] | None = None) -> Any:  # noqa: ARG002
        """Refuse: a transaction needs a database."""
        _no_transaction(key)

    def resource(self, kind: type[T]) -> T:
        """Return the resource that the test gave."""
        return self._world.resource(kind)

    def _effects(self) -> ThreadEffects:
        return _InlineEffects(self._run.effects.journal, self._run.effects.backend)

    def _wait(self, ask: Callable[[Context], Awaitable[Any]]) -> Any:
        async def asked() -> Any:
            return await ask(self._on_loop)

        return asyncio.run(asked())


class _InlineEffects(ThreadEffects):
    """Effects in the thread of a test, which has no event loop of a worker."""

    __slots__ = ()

    def _on_loop(self, ask: Callable[[], Awaitable[T]]) -> T:
        async def asked() -> T:
            return await ask()

        return asyncio.run(asked())


def context(
    task: str = "unit_test",
    *,
    events: Mapping[str, Any] | None = None,
    children: Mapping[str, Any] | None = None,
    resources: Sequence[object] = (),
    now: datetime | None = None,
    attempt: int = 1,
    metadata: Mapping[str, Any] | None = None,
) -> UnitContext:
    """Make a `Context` for a unit test: `await remind(context(events={"paid": 5}), order=7)`.

    `events` are the values of events and signals by name, `children` the results of children by their tasks' names,
    `resources` what `ctx.resource` finds.
    """
    world = _World(events or {}, children or {}, resources, now)
    return UnitContext(_run(task, attempt, metadata, world), world)


def sync_context(
    task: str = "unit_test",
    *,
    events: Mapping[str, Any] | None = None,
    children: Mapping[str, Any] | None = None,
    resources: Sequence[object] = (),
    now: datetime | None = None,
    attempt: int = 1,
    metadata: Mapping[str, Any] | None = None,
) -> UnitSyncContext:
    """Make a `SyncContext` for a unit test: see `context`."""
    world = _World(events or {}, children or {}, resources, now)
    return UnitSyncContext(_run(task, attempt, metadata, world), world)


def _run(task: str, attempt: int, metadata: Mapping[str, Any] | None, world: _World) -> RunState:
    stored = None if metadata is None else msgspec.json.encode(metadata).decode()
    job = ClaimedJob(str(uuid4()), "default", task, "{}", stored, 1, attempt, 0, 0)

    def report(_: ClaimedJob, text: str) -> None:
        world.progress.append(msgspec.json.decode(text, type=JobProgress))

    return RunState(job, None, report, Durability(_backend()))


def _backend() -> StepBackend:
    async def save(_: ClaimedJob, __: Sequence[NewStep]) -> datetime:
        return datetime.now(UTC)

    async def nothing(*_: object) -> Any:
        return None

    async def in_thread(call: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(call)

    return StepBackend(
        max_value_size=LARGEST_VALUE,
        loop=cast("Any", None),
        run_in_thread=in_thread,
        save=save,
        spawn=nothing,
        advance=nothing,
        read_large=nothing,
        cancel=nothing,
        forget_waits=nothing,
        save_waits=nothing,
        was_saved=nothing,
        transaction=lambda blocking, _: _no_transaction(blocking),
        save_in=nothing,
    )


def _encoded(value: Any, what: str) -> str:
    return encode_value(value, LARGEST_VALUE, "a test", "{} has", what)


async def _return(value: T) -> T:
    return value


def _no_transaction(key: object) -> NoReturn:
    raise ConfigError(f"ctx.transaction({key!r}) needs a database: test this handler with a worker, or with drain")
