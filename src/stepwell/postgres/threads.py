"""Wait for a blocking call without blocking the event loop, in a thread of its own.

Not `asyncio.to_thread`: its few threads are shared with the user's code, and when that has filled them with calls that
never end, a worker could not even stop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def aside(call: Callable[[], T]) -> T:
    """What the call returns, or raises."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="stepwell-aside", daemon=True).start()
    # A thread cannot be cancelled: who gives up waiting leaves it to end by itself.
    return await asyncio.shield(asyncio.wrap_future(future))
