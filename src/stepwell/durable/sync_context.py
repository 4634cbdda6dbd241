"""The context of plain functions: the same as `Context`, without `await`.

The function of a step runs in the handler's own thread. Waits, children and branches run on the worker's event loop,
and the handler's thread blocks until they are done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, TypeVarTuple, cast, overload
from uuid import UUID

from stepwell.durable.children import Child, Spawnable, SpawnCall, check_spawnable, spawn, spawn_calls
from stepwell.durable.concurrency import First
from stepwell.durable.context import Context
from stepwell.durable.effects import ThreadEffects, finish, run_on_loop
from stepwell.durable.function_info import name_of, takes_context
from stepwell.durable.job_context import JobContext
from stepwell.durable.run_state import RunState
from stepwell.durable.step import refuse_options, step
from stepwell.durable.transaction import SyncSessionTransaction, SyncTransaction
from stepwell.durable.waits import Event
from stepwell.errors import ConfigError
from stepwell.values.bounds import check_name
from stepwell.values.duration import Duration
from stepwell.values.retry import Retry

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")
Item = TypeVar("Item")
Args = TypeVarTuple("Args")
P = ParamSpec("P")
R = TypeVar("R", covariant=True)
No: TypeAlias = Literal[False]


class SyncChild(Generic[R]):
    """A job that this job spawned."""

    __slots__ = ("_child", "_ctx")

    def __init__(self, ctx: SyncContext, child: Child[R]) -> None:
        self._ctx = ctx
        self._child = child

    def result(self) -> R:
        """The child's result, for which this job waits without a slot. Raises `JobFailed` or `JobCancelled` if the
        child failed or was cancelled."""
        return self._ctx.gather(self)[0]


Branch: TypeAlias = Callable[[], T] | SyncChild[T]
"""A branch of `gather` and `first`."""


class PlainContext(JobContext):
    """Passed to a plain function whose parameter is annotated as `Context`: the part that needs no `await`."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(Context, name):
            raise ConfigError(
                f"task {self.task!r} is a plain function: for ctx.{name} declare its parameter as 'ctx: SyncContext'"
            )
        raise AttributeError(f"a context has no attribute {name!r}")


class SyncContext(JobContext):
    """Passed to a plain function that has a parameter annotated with it: `Context`, without `await`.

    A branch of `gather` and `first` is a function without arguments, or a child. Each runs in a thread of its own.
    """

    __slots__ = ("_on_loop",)

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._on_loop = Context(run)

    @overload
    def step(
        self,
        fn: Callable[[*Args], Awaitable[T]],
        *args: *Args,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        undo: Callable[[T], Any] | Callable[[], Any] | None = None,
        was: str | None = None,
    ) -> T: ...
    @overload
    def step(
        self,
        fn: Callable[[*Args], T],
        *args: *Args,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        undo: Callable[[T], Any] | Callable[[], Any] | None = None,
        was: str | None = None,
    ) -> T: ...
    def step(
        self,
        fn: Callable[..., Any],
        *args: Any,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        undo: Callable[..., Any] | None = None,
        was: str | None = None,
        **unknown: Any,
    ) -> Any:
        """Call a function and save its return value: see `Context.step`. `timeout` is for async functions only, as a
        plain one cannot be stopped."""
        if unknown:
            refuse_options(fn, unknown)
        return finish(step(self._effects(), fn, args, key, retry, timeout, undo, was))

    @overload
    def transaction(self, key: str) -> SyncTransaction: ...
    @overload
    def transaction(self, key: str, sessions: Callable[[], T]) -> SyncSessionTransaction[T]: ...
    def transaction(self, key: str, sessions: Callable[..., Any] | None = None) -> Any:
        """`with ctx.transaction("key") as tx`: see `Context.transaction`. `sessions` is a sessionmaker."""
        kind = SyncTransaction if sessions is None else SyncSessionTransaction[Any]
        made = kind(self._effects(), check_name(key, "key"), sessions)
        self._run.expect(made)
        return made

    def sleep(self, delay: Duration, *, key: str | None = None) -> None:
        """Wait. If longer than a second, the job gives up its slot and is resumed in another run."""
        self._wait(lambda ctx: ctx.sleep(delay, key=key))

    def sleep_until(self, at: datetime, *, key: str | None = None) -> None:
        """Wait until a time, which must have a time zone, by the database's clock."""
        self._wait(lambda ctx: ctx.sleep_until(at, key=key))

    def wait_for(self, event: str, *, key: str | None = None, timeout: Duration | None = None) -> Event:
        """Wait, without a slot, for an event: see `Context.wait_for`."""
        return self._wait(lambda ctx: ctx.wait_for(event, key=key, timeout=timeout))

    def receive(self, name: str, *, timeout: Duration | None = None) -> Event:
        """Wait, without a slot, for a signal to this job. Signals arrive in order, each once."""
        return self._wait(lambda ctx: ctx.receive(name, timeout=timeout))

    def spawn(self, task: Spawnable[P, R], *args: P.args, **kwargs: P.kwargs) -> SyncChild[R]:
        """Enqueue a child, once. `result()` of the returned child waits for it. See `Context.spawn`."""
        return self._spawn([check_spawnable(task).call(*args, **kwargs)])[0]

    def spawn_many(self, task: Spawnable[..., R], items: Iterable[Mapping[str, Any] | Any]) -> list[SyncChild[R]]:
        """Enqueue many children, each from a dict of arguments or from `task.using(...).call(...)`."""
        return self._spawn(spawn_calls(task, items))

    def _spawn(self, calls: Iterable[SpawnCall]) -> list[SyncChild[Any]]:
        async def spawn_all(_: Context) -> list[Child[Any]]:
            children = [spawn(self._run, call) for call in calls]
            await self._run.all_spawned()
            return children

        return [SyncChild(self, child) for child in self._wait(spawn_all)]

    @overload
    def gather(  # pyright: ignore[reportOverlappingOverload]
        self, a: Branch[T1], /, *, return_exceptions: No = False
    ) -> tuple[T1]: ...
    @overload
    def gather(self, a: Branch[T1], b: Branch[T2], /, *, return_exceptions: No = False) -> tuple[T1, T2]: ...
    @overload
    def gather(
        self, a: Branch[T1], b: Branch[T2], c: Branch[T3], /, *, return_exceptions: No = False
    ) -> tuple[T1, T2, T3]: ...
    @overload
    def gather(
        self, a: Branch[T1], b: Branch[T2], c: Branch[T3], d: Branch[T4], /, *, return_exceptions: No = False
    ) -> tuple[T1, T2, T3, T4]: ...
    @overload
    def gather(self, a: Branch[T1], b: Branch[T2], c: Branch[T3], d: Branch[T4], e: Branch[T5], /, *,
               return_exceptions: No = False) -> tuple[T1, T2, T3, T4, T5]: ...  # fmt: skip
    @overload
    def gather(self, a: Branch[T1], b: Branch[T2], c: Branch[T3], d: Branch[T4], e: Branch[T5], f: Branch[T6], /, *,
               return_exceptions: No = False) -> tuple[T1, T2, T3, T4, T5, T6]: ...  # fmt: skip
    @overload
    def gather(self, *branches: Branch[T], return_exceptions: No = False) -> list[T]: ...
    @overload
    def gather(self, *branches: Branch[T], return_exceptions: bool) -> list[T | BaseException]: ...
    def gather(self, *branches: Branch[Any], return_exceptions: bool = False) -> Any:
        """Run branches concurrently and return their values in order: see `Context.gather`."""
        return self._wait(lambda ctx: ctx.gather(*self._started(branches), return_exceptions=return_exceptions))

    @overload
    def map(
        self,
        fn: Callable[[Item], Awaitable[T]],
        items: Iterable[Item],
        *,
        key: Callable[[Item], str] | None = None,
        limit: int | None = None,
    ) -> list[T]: ...
    @overload
    def map(
        self,
        fn: Callable[[Item], T] | Callable[[SyncContext, Item], T],
        items: Iterable[Item],
        *,
        key: Callable[[Item], str] | None = None,
        limit: int | None = None,
    ) -> list[T]: ...
    def map(
        self,
        fn: Callable[..., Any],
        items: Iterable[Item],
        *,
        key: Callable[[Item], str] | None = None,
        limit: int | None = None,
    ) -> list[Any]:
        """Run `fn(item)` as a step for each item, in threads, at most `limit` at once: see `Context.map`."""
        listed = list(items)
        if not takes_context(fn, SyncContext):
            return self._wait(lambda ctx: ctx.map(fn, listed, key=key, limit=limit))
        run_in_thread = self._run.effects.backend.run_in_thread

        async def branch(_: Context, item: Any) -> Any:
            return await run_in_thread(lambda: fn(self, item))

        branch.__name__ = name_of(fn)
        return self._wait(lambda ctx: ctx.map(branch, listed, key=key, limit=limit))

    def first(self, *branches: Branch[Any]) -> First:
        """Run branches concurrently until one has ended: see `Context.first`. A function that lost runs to its end, but
        the steps that it saves no longer count."""
        return self._wait(lambda ctx: ctx.first(*self._started(branches)))

    def now(self) -> datetime:
        """The time by the database's clock when the job first asked for it: see `Context.now`."""
        return self._wait(lambda ctx: ctx.now())

    def random(self) -> float:
        """A number from 0 to 1, the same in each run: see `Context.random`."""
        return self._on_loop.random()

    def uuid(self) -> UUID:
        """A random uuid, the same in each run: see `Context.uuid`."""
        return self._on_loop.uuid()

    def patched(self, name: str) -> bool:
        """Whether to run the new code where a deploy changed the code of running jobs: see `Context.patched`."""
        return self._on_loop.patched(name)

    def _effects(self) -> ThreadEffects:
        effects = self._run.effects
        return ThreadEffects(effects.journal, effects.backend)

    def _wait(self, ask: Callable[[Context], Awaitable[Any]]) -> Any:
        return run_on_loop(self._run.effects.backend, lambda: ask(self._on_loop))

    def _started(self, branches: Iterable[Branch[Any]]) -> list[Awaitable[Any]]:
        branches = list(branches)
        for branch in branches:
            if not callable(branch) and not isinstance(branch, SyncChild):
                raise ConfigError(
                    f"a branch is a function without arguments, or a child, not {branch!r}: "
                    "ctx.gather(lambda: ctx.step(...), ctx.spawn(...))"
                )
        run_in_thread = self._run.effects.backend.run_in_thread
        return [
            _child_of(cast("SyncChild[Any]", branch)) if isinstance(branch, SyncChild) else run_in_thread(branch)
            for branch in branches
        ]


def _child_of(branch: SyncChild[Any]) -> Child[Any]:
    return branch._child  # pyright: ignore[reportPrivateUsage]
