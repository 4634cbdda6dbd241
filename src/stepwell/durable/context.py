"""The context of async handlers: steps, waits, children and branches, and all of `JobContext`.

The methods are one line each: the durable API itself is in `step`, `waits`, `children`, `concurrency` and `recorded`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar, TypeVarTuple, overload
from uuid import UUID

import msgspec

from stepwell.durable import concurrency, recorded, waits
from stepwell.durable.branches import Start
from stepwell.durable.children import Child, Spawnable, check_spawnable, spawn, spawn_calls
from stepwell.durable.concurrency import First
from stepwell.durable.function_info import name_of, takes_context
from stepwell.durable.job_context import JobContext
from stepwell.durable.step import refuse_options, step
from stepwell.durable.transaction import SessionTransaction, Transaction
from stepwell.durable.waits import Event
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


class Context(JobContext):
    """Passed to a handler that has a parameter annotated with it, by custom the first.

    After a crash, a failed attempt or a wait, the handler runs again from the top. Steps, waits and children that it
    has saved are not repeated: they return their saved values. So between steps the handler must be deterministic, and
    reach the same steps again.
    """

    __slots__ = ()

    @overload
    async def step(
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
    async def step(
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
        """Call a function and save its return value. Once that is saved, return it without calling the function.

        A replay finds the step by its `key`, by default the function's name, with `#2` for the second of that name.
        `was` is the key that the step had before a deploy renamed it. With `retry` the step is tried again by itself;
        the last error is saved, and fails the job unless the handler catches it. If the job later fails or is
        cancelled, the step is compensated: `undo` is called with the step's value, or with nothing. A plain function
        runs in a thread.
        """
        if unknown:
            refuse_options(fn, unknown)
        run = self._run
        made = step(run.effects, fn, args, key, retry, timeout, undo, was)
        run.expect(made)
        return made

    @overload
    def transaction(self, key: str) -> Transaction: ...
    @overload
    def transaction(self, key: str, sessions: Callable[[], T]) -> SessionTransaction[T]: ...
    def transaction(self, key: str, sessions: Callable[..., Any] | None = None) -> Any:
        """`async with ctx.transaction("key") as tx`: the statements of `tx` commit with the step, exactly once.

        With an async_sessionmaker of SQLAlchemy, `ctx.transaction("key", Sessions)`, `tx.session` is such a session. If
        an earlier run committed it, the first use of `tx` leaves the block. To know something after the block, keep it
        with `tx.save(value)` and read it from `tx.value`.
        """
        kind = Transaction if sessions is None else SessionTransaction[Any]
        made = kind(self._run.effects, check_name(key, "key"), sessions)
        self._run.expect(made)
        return made

    def sleep(self, delay: Duration, *, key: str | None = None) -> Coroutine[object, None, None]:
        """Wait. If longer than a second, the job gives up its slot and is resumed in another run."""
        return self._run.track(waits.sleep(self._run.effects, delay, key))

    def sleep_until(self, at: datetime, *, key: str | None = None) -> Coroutine[object, None, None]:
        """Wait until a time, which must have a time zone, by the database's clock."""
        return self._run.track(waits.sleep_until(self._run.effects, at, key))

    def wait_for(
        self, event: str, *, key: str | None = None, timeout: Duration | None = None
    ) -> Coroutine[object, None, Event]:
        """Wait, without a slot, for an event that `app.emit` emits: the oldest of that name and key that this job has
        not taken yet, even one emitted earlier. After `timeout` the returned event is `timed_out`."""
        return self._run.track(waits.wait_for(self._run.effects, event, key, timeout))

    def receive(self, name: str, *, timeout: Duration | None = None) -> Coroutine[object, None, Event]:
        """Wait, without a slot, for a signal that `handle.send(name, value)` sends to this job. Signals arrive in
        order, each once."""
        return self._run.track(waits.receive(self._run.effects, name, timeout))

    def spawn(self, task: Spawnable[P, R], *args: P.args, **kwargs: P.kwargs) -> Child[R]:
        """Enqueue a child, once. `await` the returned child for its result: this job waits without a slot.

        Options go in `task.using(...)`. If this job fails or is cancelled, its unfinished children are cancelled.
        """
        return spawn(self._run, check_spawnable(task).call(*args, **kwargs))

    def spawn_many(self, task: Spawnable[..., R], items: Iterable[Mapping[str, Any] | Any]) -> list[Child[R]]:
        """Enqueue many children, each from a dict of arguments or from `task.using(...).call(...)`."""
        return [spawn(self._run, call) for call in spawn_calls(task, items)]

    @overload
    async def gather(self, a: Awaitable[T1], /, *, return_exceptions: No = False) -> tuple[T1]: ...
    @overload
    async def gather(
        self, a: Awaitable[T1], b: Awaitable[T2], /, *, return_exceptions: No = False
    ) -> tuple[T1, T2]: ...
    @overload
    async def gather(
        self, a: Awaitable[T1], b: Awaitable[T2], c: Awaitable[T3], /, *, return_exceptions: No = False
    ) -> tuple[T1, T2, T3]: ...
    @overload
    async def gather(self, a: Awaitable[T1], b: Awaitable[T2], c: Awaitable[T3], d: Awaitable[T4], /, *,
                     return_exceptions: No = False) -> tuple[T1, T2, T3, T4]: ...  # fmt: skip
    @overload
    async def gather(self, a: Awaitable[T1], b: Awaitable[T2], c: Awaitable[T3], d: Awaitable[T4], e: Awaitable[T5], /,
                     *, return_exceptions: No = False) -> tuple[T1, T2, T3, T4, T5]: ...  # fmt: skip
    @overload
    async def gather(self, a: Awaitable[T1], b: Awaitable[T2], c: Awaitable[T3], d: Awaitable[T4], e: Awaitable[T5],
                     f: Awaitable[T6], /, *,
                     return_exceptions: No = False) -> tuple[T1, T2, T3, T4, T5, T6]: ...  # fmt: skip
    @overload
    async def gather(self, *branches: Awaitable[T], return_exceptions: No = False) -> list[T]: ...
    @overload
    async def gather(self, *branches: Awaitable[T], return_exceptions: bool) -> list[T | BaseException]: ...
    def gather(self, *branches: Awaitable[Any], return_exceptions: bool = False) -> Any:
        """Run branches concurrently and return a list of their values, in order. A branch is a step, a child, or a
        coroutine of your own. To type checkers the values of up to six branches are a tuple, as with `asyncio.gather`.

        Every branch runs to its end, even if another fails. Then the first error, in the order of branches, is raised.
        """
        run = self._run
        return run.track(concurrency.gather(run, branches, return_exceptions=return_exceptions), branches)

    @overload
    async def map(
        self,
        fn: Callable[[Item], Awaitable[T]] | Callable[[Context, Item], Awaitable[T]],
        items: Iterable[Item],
        *,
        key: Callable[[Item], str] | None = None,
        limit: int | None = None,
    ) -> list[T]: ...
    @overload
    async def map(
        self,
        fn: Callable[[Item], T],
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
    ) -> Any:
        """Run `fn(item)` as a step for each item, at most `limit` at once, and return the values in order.

        If the first parameter of `fn` is annotated as `Context`, `fn(ctx, item)` is a branch with steps of its own.
        `key` tells the items apart. By default text and ints are their own keys, and other items go by their index.
        """
        run = self._run
        return run.track(concurrency.map(run, fn, items, self._item_starter(fn), key, limit))

    def _item_starter(self, fn: Callable[..., Any]) -> Callable[[Any], Start]:
        if takes_context(fn, Context):
            return lambda item: lambda: fn(self, item)
        # A lambda has no name, but the branch of its item has.
        key = "item" if name_of(fn) == "<lambda>" else None
        return lambda item: lambda: self.step(fn, item, key=key)

    def first(self, *branches: Awaitable[Any]) -> Coroutine[object, None, First]:
        """Run branches concurrently until one has ended. The others are cancelled, with the children among them and
        those that they spawned.

        The winner is saved.
        """
        return self._run.track(concurrency.first(self._run, branches), branches)

    def now(self) -> Coroutine[object, None, datetime]:
        """The time by the database's clock when the job first asked for it. Later runs get the same time."""
        return self._run.track(recorded.now(self._run.effects))

    def random(self) -> float:
        """A number from 0 to 1, the same in each run. After `Restart`, or if the job begins anew, it is another one."""
        return msgspec.json.decode(recorded.draw(self._run.journal, "random"))

    def uuid(self) -> UUID:
        """A random uuid, the same in each run. After `Restart`, or if the job begins anew, it is another one."""
        return msgspec.json.decode(recorded.draw(self._run.journal, "uuid"), type=UUID)

    def patched(self, name: str) -> bool:
        """Whether to run the new code where a deploy changed the code of running jobs: False for a job that had passed
        this point before the change, True for all others, and the same in each run of a job."""
        return recorded.patched(self._run.journal, name)
