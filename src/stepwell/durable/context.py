"""What the handler of an async task may ask of its job: steps, waits, children, and all that `JobContext` knows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, NoReturn, ParamSpec, Protocol, TypeVar, TypeVarTuple, overload
from uuid import UUID

import msgspec

from stepwell.durable import step as step_plans
from stepwell.durable import waits
from stepwell.durable.branches import (
    BranchEnd,
    First,
    Raised,
    Returned,
    Start,
    as_start,
    close_unused,
    keys_of,
    leaves,
    run_branches,
    run_first,
    settle,
)
from stepwell.durable.children import Spawned, Spawner, child_result, enter_spawn
from stepwell.durable.effects import Plan, aperform
from stepwell.durable.function_info import name_of, takes_context
from stepwell.durable.job_context import JobContext
from stepwell.durable.journal import Suspend
from stepwell.durable.step import StepCall
from stepwell.durable.transaction import Transaction
from stepwell.durable.unawaited import takes_branches, to_be_awaited
from stepwell.durable.waits import Event
from stepwell.errors import ConfigError, StepChanged
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

_CAUGHT_PAUSE = 0.1


class _HandleOf(Protocol[R]):
    def result(self, timeout: Duration | None = None) -> R: ...


class Spawnable(Protocol[P, R]):
    """A task, or `task.using(...)`."""

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...
    def calls(self, items: list[Any]) -> Iterable[Any]: ...
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> _HandleOf[R]: ...


class Child(Generic[R]):
    """A job that this one spawned. `await` it for its result, alone or by `ctx.gather`.

    If it failed or was cancelled, that raises `JobFailed` or `JobCancelled`.
    """

    __slots__ = ("_ctx", "spawned")

    def __init__(self, ctx: Context, spawned: Spawned) -> None:
        self._ctx = ctx
        self.spawned = spawned

    def __repr__(self) -> str:
        return f"<Child {self.spawned.key} of {self._ctx.id}>"

    def __await__(self) -> Generator[Any, Any, R]:
        return self._ctx.result_of(self.spawned).__await__()


class Context(JobContext):
    """Given to a handler that has a parameter annotated with it, the first by custom.

    What `step` and its kin have saved is not done again when the job is resumed: after a crash, a failed attempt or a
    wait the handler is run from the top, and finds their values. So what it does between steps must come to the same
    steps again.
    """

    __slots__ = ("_spawner",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._spawner: Spawner | None = None

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
    @to_be_awaited
    async def step(
        self,
        fn: Callable[..., Any],
        *args: Any,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        undo: Callable[..., Any] | None = None,
        was: str | None = None,
    ) -> Any:
        """Run a function and save what it returns; once it is saved, return that without running it.

        The step is found again by its `key`, by default the function's name, with `#2` for the second of that name.
        `was` is the key it had before a deploy renamed it. With `retry` the step itself is tried again; an error that
        is left is saved, and fails the job unless the handler catches it. `undo` is called with the step's value, or
        with nothing, should the job fail or be cancelled later on. A plain function runs in a thread.
        """
        limit = None if timeout is None else seconds(timeout, "timeout")
        store, journal = self.store, self.journal
        try:
            call = StepCall(journal, store.max_value_size, fn, args, key, retry, undo, was)
            if not call.to_be_run or not call.look.is_async or retry is not None or limit is not None:
                return await aperform(step_plans.take_step(journal, call, limit), store)
            # What most steps are, without the price of a plan.
            try:
                saving = call.to_save(await fn(*args))
            except Exception as error:
                call.failed(error)
                raise
            try:
                await store.save(saving)
            except asyncio.CancelledError:
                await store.save(saving)  # as in `Save`
                raise
            return call.saved()
        except Suspend as suspend:
            await self._leave(suspend)

    def transaction(self, key: str) -> Transaction:
        """`async with ctx.transaction("key") as tx`: what is done by `tx` is committed with the step, exactly once.

        When it was committed in an earlier run, the block is left at the first use of `tx`; what must be known after it
        is kept by `tx.save(value)` and found in `tx.value`.
        """
        made = Transaction(self.journal, self.store, check_name(key, "key"))
        self.made.add(made)
        return made

    @to_be_awaited
    async def sleep(self, delay: Duration, *, key: str | None = None) -> None:
        """Wait. Longer than a second: without a slot, and in another run."""
        await self._perform(waits.sleep(self.journal, seconds(delay, "delay"), None, key))

    @to_be_awaited
    async def sleep_until(self, at: datetime, *, key: str | None = None) -> None:
        """Wait for a time, which has a time zone, by the database's clock."""
        if not isinstance(at, datetime) or at.utcoffset() is None:
            raise ConfigError(f"sleep_until takes a datetime with a time zone, not {at!r}")
        await self._perform(waits.sleep(self.journal, None, at, key))

    @to_be_awaited
    async def wait_for(self, event: str, *, key: str | None = None, timeout: Duration | None = None) -> Event:
        """Wait, without a slot, for an event that `app.emit` emits: the oldest of that name and key that this job has
        not taken yet, also one from before. After `timeout` what is returned says `timed_out`."""
        return await self._perform(waits.wait(self.journal, event, key, _limit(timeout), "wait"))

    @to_be_awaited
    async def receive(self, name: str, *, timeout: Duration | None = None) -> Event:
        """Wait, without a slot, for what `handle.send(name, value)` sends to this job: in order, each once."""
        return await self._perform(waits.wait(self.journal, name, None, _limit(timeout), "receive"))

    def spawn(self, task: Spawnable[P, R], *args: P.args, **kwargs: P.kwargs) -> Child[R]:
        """Enqueue a child, once. `await` what is returned for its result; this job waits for it without a slot.

        Options go by `task.using(...)`. Children that are left when this job fails or is cancelled are cancelled.
        """
        return self.spawn_call(call_of(task)(*args, **kwargs))

    def spawn_many(self, task: Spawnable[..., R], items: Iterable[Mapping[str, Any] | Any]) -> list[Child[R]]:
        """Enqueue many children, each a dict of arguments or `task.using(...).call(...)`."""
        return [self.spawn_call(call) for call in calls_of(task, items)]

    @overload
    async def gather(self, b1: Awaitable[T1], /, *, return_exceptions: Literal[False] = False) -> tuple[T1]: ...
    @overload
    async def gather(
        self, b1: Awaitable[T1], b2: Awaitable[T2], /, *, return_exceptions: Literal[False] = False
    ) -> tuple[T1, T2]: ...
    @overload
    async def gather(
        self, b1: Awaitable[T1], b2: Awaitable[T2], b3: Awaitable[T3], /, *, return_exceptions: Literal[False] = False
    ) -> tuple[T1, T2, T3]: ...
    @overload
    async def gather(
        self,
        b1: Awaitable[T1],
        b2: Awaitable[T2],
        b3: Awaitable[T3],
        b4: Awaitable[T4],
        /,
        *,
        return_exceptions: Literal[False] = False,
    ) -> tuple[T1, T2, T3, T4]: ...
    @overload
    async def gather(
        self,
        b1: Awaitable[T1],
        b2: Awaitable[T2],
        b3: Awaitable[T3],
        b4: Awaitable[T4],
        b5: Awaitable[T5],
        /,
        *,
        return_exceptions: Literal[False] = False,
    ) -> tuple[T1, T2, T3, T4, T5]: ...
    @overload
    async def gather(
        self,
        b1: Awaitable[T1],
        b2: Awaitable[T2],
        b3: Awaitable[T3],
        b4: Awaitable[T4],
        b5: Awaitable[T5],
        b6: Awaitable[T6],
        /,
        *,
        return_exceptions: Literal[False] = False,
    ) -> tuple[T1, T2, T3, T4, T5, T6]: ...
    @overload
    async def gather(self, *branches: Awaitable[T], return_exceptions: Literal[False] = False) -> list[T]: ...
    @overload
    async def gather(self, *branches: Awaitable[T], return_exceptions: bool) -> list[T | BaseException]: ...
    @takes_branches
    async def gather(self, *branches: Awaitable[Any], return_exceptions: bool = False) -> Any:
        """Run branches side by side and return a list of their values in order: steps, children, or coroutines of your
        own. To type checkers the values of up to six branches are a tuple, as with `asyncio.gather`.

        All of them are run to their end, also when one fails; then the first error, in their order, is raised.
        """
        name = self.journal.number_branch("gather")
        ends: list[BranchEnd | None] = [None] * len(branches)
        starts: list[tuple[str, Start]] = []
        places: list[int] = []
        for place, branch in enumerate(branches):
            if isinstance(branch, Child):
                continue
            try:
                starts.append((f"{name}[{place}]", as_start(branch)))
            except ConfigError:
                close_unused(branches)
                raise
            places.append(place)
        for place, end in zip(places, await run_branches(self.journal, starts), strict=True):
            ends[place] = end
        children = [(place, branch) for place, branch in enumerate(branches) if isinstance(branch, Child)]
        for place, end in zip((p for p, _ in children), await self._ends_of([c for _, c in children]), strict=True):
            ends[place] = end
        return self._settle([end for end in ends if end is not None], return_exceptions=return_exceptions)

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
    @to_be_awaited
    async def map(
        self,
        fn: Callable[..., Any],
        items: Iterable[Item],
        *,
        key: Callable[[Item], str] | None = None,
        limit: int | None = None,
    ) -> list[Any]:
        """Run `fn(item)` as a step for each item, no more than `limit` at once, and return their values in order.

        If the first parameter of `fn` is annotated as `Context`, it is `fn(ctx, item)`, a branch with steps of its own.
        An item is told from the others by `key`, by default by itself if it is text or an int, else by its place.
        """
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise ConfigError(f"limit is {limit!r}: it must be a whole number of at least 1")
        listed, name = list(items), self.journal.number_branch(f"map:{name_of(fn)}")
        begin = self._begin_item(fn)
        starts = [(f"{name}[{own}]", begin(item)) for own, item in zip(keys_of(listed, key), listed, strict=True)]
        ends = await run_branches(self.journal, starts, limit)
        if len(ends) < len(starts) and not any(isinstance(end, Suspend) for end in ends):
            raise AssertionError("branches were left without one that waits")
        return self._settle(ends)

    @takes_branches
    async def first(self, *branches: Awaitable[Any]) -> First:
        """Run branches side by side until one has ended; the others are cancelled, and the children among them or
        spawned by them, too.

        Which one it was is saved.
        """
        if not branches:
            raise ConfigError("ctx.first takes at least one branch")
        name = self.journal.number_branch("first")
        place, winner = step_plans.choose_first(self.journal)
        names = [f"{name}[{index}]" for index in range(len(branches))]
        if winner is not None and winner >= len(branches):
            close_unused(branches)
            raise StepChanged(
                f"ctx.first was won by branch {winner}, and has {len(branches)} now: give back that branch"
            )
        if self.journal.undoing:
            # What the losers did is undone, too: so all are run, each as far as it came.
            ends = await run_branches(self.journal, list(zip(names, map(as_start, branches), strict=True)))
            values = self._settle(ends if winner is None else [ends[winner]])
            return First(winner or 0, values[0])
        if winner is not None:
            close_unused([branch for index, branch in enumerate(branches) if index != winner])
            self._give_up(name, len(branches), winner)
            # The run that saved it may have died before it cancelled them.
            await self._cancel_losers(branches, names, winner)
            end = (await run_branches(self.journal, [(names[winner], as_start(branches[winner]))]))[0]
            return First(winner, self._settle([end])[0])
        await self.all_spawned()
        winner, end = await run_first(self.journal, list(zip(names, map(as_start, branches), strict=True)))
        if isinstance(end, Suspend) or (isinstance(end, Raised) and leaves(end.error)):
            self._settle([end])
        stale = [key for index, own in enumerate(names) if index != winner for key in self.journal.waits_in(own)]
        if stale:
            # Else they would take what comes for others.
            await self.store.forget_waits(stale)
        await self._perform(step_plans.save_first(self.journal, place, winner))
        self._give_up(name, len(branches), winner)
        await self._cancel_losers(branches, names, winner)
        self.journal.was_saved()
        return First(winner, self._settle([end])[0])

    async def _cancel_losers(self, branches: Sequence[Awaitable[Any]], names: Sequence[str], winner: int) -> None:
        """Cancel the children that lost, and those of branches that lost."""
        losers = [index for index in range(len(branches)) if index != winner]
        lost = [branch.spawned for index in losers if isinstance(branch := branches[index], Child)]
        if self._spawner is not None:
            prefixes = tuple(self.journal.prefix_of(names[index]) for index in losers)
            lost += [spawned for spawned in self._spawner.spawned if spawned.key.startswith(prefixes)]
            await self._spawner.finished()
        live = {spawned.child_id for spawned in lost if spawned.saved is None or spawned.saved.pending}
        live.update(child_id for index in losers for child_id in self.journal.children_in(names[index]))
        if live:
            await self.store.cancel(sorted(child_id for child_id in live if child_id is not None))

    @to_be_awaited
    async def now(self) -> datetime:
        """The time, by the database's clock: of the run that asked first."""
        return await self._perform(step_plans.now(self.journal))

    def random(self) -> float:
        """A number from 0 to 1, the same in each run; another one after `Restart`, or when the job begins anew."""
        return msgspec.json.decode(step_plans.draw(self.journal, "random"))

    def uuid(self) -> UUID:
        """A random uuid, the same in each run; another one after `Restart`, or when the job begins anew."""
        return msgspec.json.decode(step_plans.draw(self.journal, "uuid"), type=UUID)

    def patched(self, name: str) -> bool:
        """Whether to take the new way, where code was changed under running jobs: False for a job that was past this
        point before the change, True for all others, in each of their runs."""
        return step_plans.patched(self.journal, name)

    # What follows is for the worker.

    async def result_of(self, spawned: Spawned) -> Any:
        """What a child returned."""
        await self.all_spawned()
        return await self._perform(child_result(spawned))

    async def all_spawned(self) -> None:
        """Wait until the children have been put in."""
        if self._spawner is not None:
            await self._spawner.finished()

    def spawn_call(self, call: Any) -> Child[Any]:
        """Enqueue a child from a call of its task."""
        spawned = enter_spawn(self.journal, call)
        if spawned.step is not None:
            if self._spawner is None:
                self._spawner = Spawner(self.journal, self.store)
            self._spawner.add(spawned)
        return Child(self, spawned)

    def _give_up(self, name: str, branches: int, winner: int) -> None:
        for index in range(branches):
            if index != winner:
                self.journal.give_up(f"{name}[{index}]")

    async def _ends_of(self, children: Sequence[Child[Any]]) -> list[BranchEnd]:
        """How children ended. Those that have not are waited for together: one wait, until all have."""
        if children:
            await self.all_spawned()
        ends: list[BranchEnd] = []
        waiting: list[str] = []
        for child in children:
            try:
                ends.append(Returned(await aperform(child_result(child.spawned), self.store)))
            except Suspend:
                waiting.append(child.spawned.key)
                ends.append(Suspend())
            except Exception as error:
                ends.append(Raised(error))
        if waiting:
            ends[next(n for n, end in enumerate(ends) if isinstance(end, Suspend))] = Suspend([waiting])
        return ends

    def _settle(self, ends: Sequence[BranchEnd], *, return_exceptions: bool = False) -> list[Any]:
        try:
            return settle(ends, return_exceptions=return_exceptions)
        except Suspend as suspend:
            self.journal.leave(suspend)

    def _begin_item(self, fn: Callable[..., Any]) -> Callable[[Any], Start]:
        if takes_context(fn, Context):
            return lambda item: lambda: fn(self, item)
        # A lambda has no name, but here the item has one.
        key = "item" if name_of(fn) == "<lambda>" else None
        return lambda item: lambda: self.step(fn, item, key=key)

    async def _perform(self, plan: Plan[T]) -> T:
        try:
            return await aperform(plan, self.store)
        except Suspend as suspend:
            await self._leave(suspend)

    async def _leave(self, suspend: Suspend) -> NoReturn:
        if self.journal.was_left():
            # A loop that swallows this would never give the others a turn.
            await asyncio.sleep(_CAUGHT_PAUSE)
        self.journal.leave(suspend)


def call_of(task: Any) -> Callable[..., Any]:
    """What makes a call of a task. Raises if it is none."""
    call = getattr(task, "call", None)
    if call is None:
        raise ConfigError(f"ctx.spawn takes a task, as @app.task makes it, not {task!r}; ctx.step runs a function here")
    if task.connection is not None:
        raise ConfigError("a child is enqueued with the step that spawns it: leave out using(connection=...)")
    return call


def calls_of(task: Spawnable[..., Any], items: Iterable[Any]) -> list[Any]:
    """The calls of a task for many children."""
    call_of(task)
    return list(task.calls(list(items)))


def _limit(timeout: Duration | None) -> float | None:
    return None if timeout is None else seconds(timeout, "timeout")
