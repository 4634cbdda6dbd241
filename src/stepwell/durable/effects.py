"""What taking a step needs done: run a function, save, pause, spawn. Each act can be done in async code or in a thread.

A plan is a generator of acts, so `steps`, `waits`, `children` and `undo` are written once for both.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec
import psycopg

from stepwell.errors import ConfigError
from stepwell.values.duration import describe
from stepwell.values.step import NewStep, SavedStep

T = TypeVar("T")

# A wait that is not longer keeps its slot: to give the job back and to claim it again takes a few milliseconds, too.
LONGEST_PAUSE = 1.0


class NewChild(Protocol):
    """A child to be put in: the step that spawns it, and a job as `queries.NewJob`."""

    @property
    def step(self) -> NewStep: ...
    @property
    def job(self) -> Any: ...


class Store(Protocol):
    """Where a run's steps are kept. What is refused, because the job is no longer this run's, raises `Lost`."""

    max_value_size: int

    def save(self, steps: Sequence[NewStep]) -> Awaitable[datetime]: ...
    async def spawn(self, children: Sequence[NewChild]) -> list[str]: ...
    async def read_large(self, key: str) -> str: ...
    async def cancel(self, job_ids: list[str]) -> None: ...
    async def forget_waits(self, keys: list[str]) -> None: ...
    async def was_saved(self, key: str) -> bool: ...
    def run_plain(self, call: Callable[[], T]) -> Awaitable[T]: ...
    def save_in(self, connection: psycopg.Connection[Any], steps: Sequence[NewStep]) -> None: ...
    async def asave_in(self, connection: psycopg.AsyncConnection[Any], steps: Sequence[NewStep]) -> None: ...
    def transaction(self) -> AbstractContextManager[psycopg.Connection[Any]]: ...
    def atransaction(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]: ...
    def run_async(self, ask: Callable[[], Awaitable[T]]) -> T: ...
    def pause(self, seconds: float) -> None: ...


class RunFunction(msgspec.Struct, frozen=True):
    """Run the function of a step."""

    fn: Callable[..., Any]
    is_async: bool
    args: tuple[Any, ...]
    timeout: float | None
    key: str

    def ado(self, store: Store) -> Awaitable[Any]:
        if self.timeout is not None:
            return self._in_time(store)
        return self.fn(*self.args) if self.is_async else self._in_thread(store)

    async def _in_time(self, store: Store) -> Any:
        assert self.timeout is not None
        scope = asyncio.timeout(self.timeout)
        try:
            async with scope:
                return await (self.fn(*self.args) if self.is_async else self._in_thread(store))
        except TimeoutError as error:
            if scope.expired():
                raise TimeoutError(self._too_long()) from error
            raise

    async def _in_thread(self, store: Store) -> Any:
        result = await store.run_plain(self._plain)
        return await result if inspect.isawaitable(result) else result

    def do(self, store: Store) -> Any:
        if self.is_async:
            return store.run_async(lambda: self.ado(store))
        if self.timeout is not None:
            raise ConfigError(
                f"step {self.key!r}: a plain function in a plain task cannot be stopped: timeout= is for async ones"
            )
        return self._plain()

    def _plain(self) -> Any:
        return self.fn(*self.args)

    def is_late(self, error: BaseException) -> bool:
        """Whether it is this step's own timeout that ended it."""
        return type(error) is TimeoutError and error.args == (self._too_long(),)

    def _too_long(self) -> str:
        return f"step {self.key!r} ran longer than its timeout of {describe(self.timeout or 0)}"


class Save(msgspec.Struct, frozen=True):
    """Save steps; the answer is the database's time."""

    steps: Sequence[NewStep]

    async def ado(self, store: Store) -> datetime:
        try:
            return await store.save(self.steps)
        except asyncio.CancelledError:
            # It was done: that is saved all the same, or it could not be undone.
            await store.save(self.steps)
            raise

    def do(self, store: Store) -> datetime:
        return store.run_async(lambda: store.save(self.steps))


class Spawn(msgspec.Struct, frozen=True):
    """Put children in; the answer is their ids."""

    children: Sequence[NewChild]

    def ado(self, store: Store) -> Awaitable[list[str]]:
        return store.spawn(self.children)

    def do(self, store: Store) -> list[str]:
        return store.run_async(lambda: store.spawn(self.children))


class ReadLarge(msgspec.Struct, frozen=True, gc=False):
    """Read a value that did not come with the claim."""

    key: str

    def ado(self, store: Store) -> Awaitable[str]:
        return store.read_large(self.key)

    def do(self, store: Store) -> str:
        return store.run_async(lambda: store.read_large(self.key))


class Pause(msgspec.Struct, frozen=True, gc=False):
    """Wait for a moment, with the slot kept."""

    seconds: float

    def ado(self, _: Store) -> Awaitable[None]:
        return asyncio.sleep(self.seconds)

    def do(self, store: Store) -> None:
        store.pause(self.seconds)


Act = RunFunction | Save | Spawn | ReadLarge | Pause
Plan = Generator[Act, Any, T]


def saved_text(saved: SavedStep) -> Plan[str]:
    """The value of a saved step, as JSON; a large one is read now."""
    return (yield ReadLarge(saved.key)) if saved.large else bytes(saved.value).decode()


async def aperform(plan: Plan[T], store: Store) -> T:
    """Do what a plan asks for, in async code."""
    try:
        act = next(plan)
        while True:
            try:
                answer = await act.ado(store)
            except BaseException as error:
                act = plan.throw(error)
            else:
                act = plan.send(answer)
    except StopIteration as end:
        return end.value


def perform(plan: Plan[T], store: Store) -> T:
    """The same in a thread."""
    try:
        act = next(plan)
        while True:
            try:
                answer = act.do(store)
            except BaseException as error:
                act = plan.throw(error)
            else:
                act = plan.send(answer)
    except StopIteration as end:
        return end.value
