"""The effects of a step: call its function, save it, read it, pause. Steps, transactions and compensations are
coroutines over one of two classes: `Effects` in async code, `ThreadEffects` in the thread of a plain function.

`ThreadEffects` blocks instead of suspending, so `finish` can run such a coroutine without an event loop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import Any, NoReturn, TypeVar

from stepwell.durable.backend import OpenTransaction, Sessions, StepBackend
from stepwell.durable.exits import Suspend
from stepwell.durable.journal import Journal
from stepwell.durable.time_limit import TimeLimit
from stepwell.errors import ConfigError
from stepwell.plugins.step import StepRun
from stepwell.values.step import NewStep, SavedStep

T = TypeVar("T")

# A shorter wait keeps its slot: handing the job back and claiming it again takes a few milliseconds, too.
LONGEST_PAUSE = 1.0
_CAUGHT_PAUSE = 0.1


class Effects:
    """Effects in async code, on the worker's event loop."""

    __slots__ = ("backend", "job", "journal")

    def __init__(self, journal: Journal, backend: StepBackend) -> None:
        self.journal = journal
        self.job = journal.job
        self.backend = backend

    def call(
        self, fn: Callable[..., Any], args: tuple[Any, ...], key: str, limit: float | None = None, *, is_async: bool
    ) -> Awaitable[Any]:
        """Call the function of the step `key`, a plain one in a thread. Raises `TimeLimitExpired` after `limit`."""
        if self.backend.wrap_step is not None:
            return self._call_wrapped(self.backend.wrap_step, fn, args, key, limit, is_async=is_async)
        return self._call(fn, args, key, limit, is_async=is_async)

    async def _call_wrapped(
        self,
        wrap: Callable[[StepRun], AbstractContextManager[None]],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        key: str,
        limit: float | None,
        *,
        is_async: bool,
    ) -> Any:
        with wrap(StepRun(self.job, key)):
            return await self._call(fn, args, key, limit, is_async=is_async)

    def _call(
        self, fn: Callable[..., Any], args: tuple[Any, ...], key: str, limit: float | None, *, is_async: bool
    ) -> Awaitable[Any]:
        if limit is not None:
            return self._call_within(limit, fn, args, key, is_async=is_async)
        return fn(*args) if is_async else self._call_in_thread(fn, args)

    async def _call_within(
        self, limit: float, fn: Callable[..., Any], args: tuple[Any, ...], key: str, *, is_async: bool
    ) -> Any:
        async with TimeLimit(limit, f"step {key!r}"):
            return await (fn(*args) if is_async else self._call_in_thread(fn, args))

    async def _call_in_thread(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        result = await self.backend.run_in_thread(lambda: fn(*args))
        return await result if inspect.isawaitable(result) else result

    def save(self, steps: Sequence[NewStep]) -> Awaitable[datetime]:
        """Save steps and return the database's time."""
        return self._save_and_tell(steps) if self.journal.tells_saved else self.backend.save(self.job, steps)

    async def _save_and_tell(self, steps: Sequence[NewStep]) -> datetime:
        at = await self.backend.save(self.job, steps)
        self.journal.tell_saved(steps)
        return at

    def read_large(self, key: str) -> Awaitable[str]:
        return self.backend.read_large(self.job, key)

    def pause(self, seconds: float) -> Awaitable[None]:
        """Wait for a moment and keep the slot."""
        return asyncio.sleep(seconds)

    async def leave(self, suspend: Suspend) -> NoReturn:
        """Leave the handler. If it caught an earlier suspension, pause: its loop would starve the others."""
        if self.journal.was_left():
            await self.pause(_CAUGHT_PAUSE)
        self.journal.leave(suspend)

    def transaction(self, sessions: Sessions | None) -> AbstractAsyncContextManager[OpenTransaction]:
        return self.backend.transaction(False, sessions)

    def was_saved(self, key: str) -> Awaitable[bool]:
        return self.backend.was_saved(self.job, key)


class ThreadEffects(Effects):
    """The same effects in a thread: no method suspends, each blocks until the worker's event loop has answered."""

    __slots__ = ()

    async def _call(
        self, fn: Callable[..., Any], args: tuple[Any, ...], key: str, limit: float | None, *, is_async: bool
    ) -> Any:
        """Call the function of a step: a plain one in this thread, an async one on the worker's event loop."""
        if is_async:
            return self._on_loop(lambda: Effects._call(self, fn, args, key, limit, is_async=True))
        if limit is not None:
            raise ConfigError(
                f"step {key!r}: a plain function in a plain task cannot be stopped: timeout= is for async ones"
            )
        return fn(*args)

    async def save(self, steps: Sequence[NewStep]) -> datetime:
        return self._on_loop(lambda: Effects.save(self, steps))

    async def read_large(self, key: str) -> str:
        return self._on_loop(lambda: Effects.read_large(self, key))

    async def pause(self, seconds: float) -> None:
        self._on_loop(lambda: Effects.pause(self, seconds))

    def transaction(self, sessions: Sessions | None) -> AbstractAsyncContextManager[OpenTransaction]:
        return self.backend.transaction(True, sessions)

    async def was_saved(self, key: str) -> bool:
        return self._on_loop(lambda: Effects.was_saved(self, key))

    def _on_loop(self, ask: Callable[[], Awaitable[T]]) -> T:
        return run_on_loop(self.backend, ask)


async def saved_text(effects: Effects, saved: SavedStep) -> str:
    """The value of a saved step, as JSON. A large one is read now."""
    text = await effects.read_large(saved.key) if saved.large else bytes(saved.value).decode()
    return effects.backend.sealer.open(text)


def run_on_loop(backend: StepBackend, ask: Callable[[], Awaitable[T]]) -> T:
    """Await something on the worker's event loop, and block this thread until it is done."""

    async def asked() -> T:
        return await ask()

    return asyncio.run_coroutine_threadsafe(asked(), backend.loop).result()


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over `ThreadEffects` in this thread."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise AssertionError("a coroutine over ThreadEffects suspended")
