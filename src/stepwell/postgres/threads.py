"""Keep blocking calls off the event loop: run them in a thread, or refuse them.

A call runs in a thread of its own and not in one of `asyncio.to_thread`'s: user code shares those few threads. If it
fills them with calls that never return, a worker that depends on them cannot even stop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from stepwell.errors import ConfigError

T = TypeVar("T")


async def in_thread(call: Callable[[], T]) -> T:
    """Return what the call returns, or raise what it raises."""
    if sys.is_finalizing():
        # An app that is left as the interpreter ends, after a second Ctrl-C: no thread starts any more, and `start`
        # would wait for ever.
        return call()
    running_loop()
    # A thread cannot be cancelled: if the caller stops waiting, the thread runs on until the call ends.
    return await asyncio.shield(begin_in_thread(call))


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this thread. Raises `ConfigError` if there is none, as on trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigError(
            "this async call needs a running event loop of asyncio: on trio, call its blocking twin in a thread, such "
            "as 'await trio.to_thread.run_sync(task.enqueue, ...)'; under anyio's pytest plugin, have anyio_backend "
            'return "asyncio"'
        ) from None


def begin_in_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """The same, begun at once. No task waits for it, so asyncio does not cancel it at the end of a script."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="stepwell-in-thread", daemon=True).start()
    return asyncio.wrap_future(future)


def refuse_in_event_loop(name: str, instead: str) -> None:
    """Raise `ConfigError` if an event loop runs in this thread, because a blocking call would stop it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError(f"{name}() would block the running event loop: await {instead}() instead")
