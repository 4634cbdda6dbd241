"""What the handler of a plain task may ask of its job: the same as `Context`, without `await`, in its thread.

The function of a step runs in that thread, too. All else is done by a `Context` on the worker's event loop, and waited
for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, TypeVarTuple, cast, overload
from uuid import UUID

from stepwell.durable import step as step_plans
from stepwell.durable.branches import First
from stepwell.durable.context import Child, Context, Spawnable, call_of, calls_of
from stepwell.durable.effects import Store, perform
from stepwell.durable.function_info import name_of, takes_context
from stepwell.durable.job_context import JobContext
from stepwell.durable.journal import Suspend
from stepwell.durable.step import StepCall
from stepwell.durable.transaction import SyncTransaction
from stepwell.durable.waits import Event
from stepwell.errors import ConfigError
from stepwell.values.duration import Duration, seconds
from stepwell.values.names import check_name
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


class SyncChild(Generic[R]):
    """A job that this one spawned."""

    __slots__ = ("_ctx", "child")

    def __init__(self, ctx: SyncContext, child: Child[R]) -> None:
        self._ctx = ctx
        self.child = child

    def result(self) -> R:
        """Its result, for which this job waits without a slot; raises `JobFailed` or `JobCancelled` if it ended so."""
        return self._ctx.gather(self)[0]


Branch: TypeAlias = Callable[[], T] | SyncChild[T]
"""What `gather` and `first` run side by side."""


class PlainContext(JobContext):
    """Given to a plain function whose parameter is annotated as `Context`: all that needs no `await`."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if hasattr(Context, name):
            raise ConfigError(
                f"task {self.task!r} is a plain function: for ctx.{name} declare its parameter as 'ctx: SyncContext'"
            )
        raise AttributeError(f"a context has no attribute {name!r}")


class SyncContext(JobContext):
    """Given to a plain function that has a parameter annotated with it: `Context`, without `await`.

    A branch of `gather` and `first` is a function without arguments, or a child; each runs in a thread of its own.
    """

    __slots__ = ("_inner",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._inner = Context(*args)

    def ask_to_stop(self) -> None:
        """Make `cancelled` true, also for branches that were given a `Context`."""
        super().ask_to_stop()
        self._inner.ask_to_stop()

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
    ) -> Any:
        """Run a function and save what it returns; once it is saved, return that without running it. See
        `Context.step`; a `timeout` is for async functions only, as a plain one cannot be stopped."""
        limit = None if timeout is None else seconds(timeout, "timeout")
        store = self.store
        journal = self.journal
        try:
            call = StepCall(journal, store.max_value_size, fn, args, key, retry, undo, was)
            return perform(step_plans.take_step(journal, call, limit), store)
        except Suspend as suspend:
            journal.leave(suspend)

    def transaction(self, key: str) -> SyncTransaction:
        """`with ctx.transaction("key") as tx`: see `Context.transaction`."""
        made = SyncTransaction(self.journal, self.store, check_name(key, "key"))
        self.made.add(made)
        return made

    def sleep(self, delay: Duration, *, key: str | None = None) -> None:
        """Wait. Longer than a second: without a slot, and in another run."""
        self._wait(lambda ctx: ctx.sleep(delay, key=key))

    def sleep_until(self, at: datetime, *, key: str | None = None) -> None:
        """Wait for a time, which has a time zone, by the database's clock."""
        self._wait(lambda ctx: ctx.sleep_until(at, key=key))

    def wait_for(self, event: str, *, key: str | None = None, timeout: Duration | None = None) -> Event:
        """Wait, without a slot, for an event: see `Context.wait_for`."""
        return self._wait(lambda ctx: ctx.wait_for(event, key=key, timeout=timeout))

    def receive(self, name: str, *, timeout: Duration | None = None) -> Event:
        """Wait, without a slot, for what is sent to this job: in order, each once."""
        return self._wait(lambda ctx: ctx.receive(name, timeout=timeout))

    def spawn(self, task: Spawnable[P, R], *args: P.args, **kwargs: P.kwargs) -> SyncChild[R]:
        """Enqueue a child, once; `result()` of what is returned waits for it. See `Context.spawn`."""
        call = call_of(task)(*args, **kwargs)

        async def spawn(ctx: Context) -> Child[Any]:
            child = ctx.spawn_call(call)
            await ctx.all_spawned()
            return child

        return SyncChild(self, self._wait(spawn))

    def spawn_many(self, task: Spawnable[..., R], items: Iterable[Mapping[str, Any] | Any]) -> list[SyncChild[R]]:
        """Enqueue many children, each a dict of arguments or `task.using(...).call(...)`."""
        calls = calls_of(task, items)

        async def spawn(ctx: Context) -> list[Child[Any]]:
            children = [ctx.spawn_call(call) for call in calls]
            await ctx.all_spawned()
            return children

        return [SyncChild(self, child) for child in self._wait(spawn)]

    @overload
    def gather(  # pyright: ignore[reportOverlappingOverload]
        self, b1: Branch[T1], /, *, return_exceptions: Literal[False] = False
    ) -> tuple[T1]: ...
    @overload
    def gather(
        self, b1: Branch[T1], b2: Branch[T2], /, *, return_exceptions: Literal[False] = False
    ) -> tuple[T1, T2]: ...
    @overload
    def gather(
        self, b1: Branch[T1], b2: Branch[T2], b3: Branch[T3], /, *, return_exceptions: Literal[False] = False
    ) -> tuple[T1, T2, T3]: ...
    @overload
    def gather(
        self,
        b1: Branch[T1],
        b2: Branch[T2],
        b3: Branch[T3],
        b4: Branch[T4],
        /,
        *,
        return_exceptions: Literal[False] = False,
    ) -> tuple[T1, T2, T3, T4]: ...
    @overload
    def gather(
        self,
        b1: Branch[T1],
        b2: Branch[T2],
        b3: Branch[T3],
        b4: Branch[T4],
        b5: Branch[T5],
        /,
        *,
        return_exceptions: Literal[False] = False,
    ) -> tuple[T1, T2, T3, T4, T5]: ...
    @overload
    def gather(
        self,
        b1: Branch[T1],
        b2: Branch[T2],
        b3: Branch[T3],
        b4: Branch[T4],
        b5: Branch[T5],
        b6: Branch[T6],
        /,
        *,
        return_exceptions: Literal[False] = False,
    ) -> tuple[T1, T2, T3, T4, T5, T6]: ...
    @overload
    def gather(self, *branches: Branch[T], return_exceptions: Literal[False] = False) -> list[T]: ...
    @overload
    def gather(self, *branches: Branch[T], return_exceptions: bool) -> list[T | BaseException]: ...
    def gather(self, *branches: Branch[Any], return_exceptions: bool = False) -> Any:
        """Run branches side by side and return their values in order: see `Context.gather`."""
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
        """Run `fn(item)` as a step for each item, in threads, no more than `limit` at once: see `Context.map`."""
        listed = list(items)
        if not takes_context(fn, SyncContext):
            return self._wait(lambda ctx: ctx.map(fn, listed, key=key, limit=limit))
        store = self.store

        async def branch(_: Context, item: Any) -> Any:
            return await store.run_plain(lambda: fn(self, item))

        branch.__name__ = name_of(fn)
        return self._wait(lambda ctx: ctx.map(branch, listed, key=key, limit=limit))

    def first(self, *branches: Branch[Any]) -> First:
        """Run branches side by side until one has ended: see `Context.first`. A function that lost runs on to its end,
        but what it saves no longer counts."""
        return self._wait(lambda ctx: ctx.first(*self._started(branches)))

    def now(self) -> datetime:
        """The time, by the database's clock: of the run that asked first."""
        return self._wait(lambda ctx: ctx.now())

    def random(self) -> float:
        """A number from 0 to 1, the same in each run: see `Context.random`."""
        return self._shared().random()

    def uuid(self) -> UUID:
        """A random uuid, the same in each run: see `Context.uuid`."""
        return self._shared().uuid()

    def patched(self, name: str) -> bool:
        """Whether to take the new way, where code was changed under running jobs: see `Context.patched`."""
        return self._shared().patched(name)

    def _shared(self) -> Context:
        self._inner.share(self.journal)
        return self._inner

    def _wait(self, ask: Callable[[Context], Any]) -> Any:
        store, ctx = self.store, self._shared()
        return store.run_async(lambda: ask(ctx))

    def _started(self, branches: Iterable[Any]) -> list[Any]:
        store: Store = self.store
        branches = list(branches)
        for branch in branches:
            if not callable(branch) and not isinstance(branch, SyncChild):
                raise ConfigError(
                    f"a branch is a function without arguments, or a child, not {branch!r}: "
                    "ctx.gather(lambda: ctx.step(...), ctx.spawn(...))"
                )
        return [
            cast("SyncChild[Any]", branch).child if isinstance(branch, SyncChild) else store.run_plain(branch)
            for branch in branches
        ]
