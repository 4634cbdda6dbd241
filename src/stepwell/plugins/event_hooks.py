"""Functions of the user's that are called with telemetry events. No job waits for them, and none is harmed by them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import os
import queue
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, cast

from stepwell.plugins.plugin import Plugin
from stepwell.telemetry.bus import EventBus, Telemetry, logger

EventHook = Callable[[Any], object]

_MOST_WAITING = 10_000
_PATIENCE = 5.0


class EventHooks(Plugin):
    """Hands events to functions: to plain ones in one thread, to async ones on the event loop of the worker, or of
    whoever emits the event."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._loops: list[asyncio.AbstractEventLoop] = []
        self._calls: dict[Future[None], asyncio.AbstractEventLoop] = {}
        """The calls of async functions that have not ended, and the loop of each."""
        self._queue: queue.SimpleQueue[tuple[EventHook, Telemetry]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._told_full = False
        self._told_no_loop = False

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._begin()  # a forked child has neither the thread nor the loops

    def add(self, kinds: tuple[type[Telemetry], ...], fn: EventHook) -> None:
        """Call the function with events of these classes. Events of other classes are not made for it."""
        is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
        self._events.subscribe(partial(self._hand_to_loop if is_async else self._hand_to_thread, fn), kinds)

    async def start_worker(self, worker: Any) -> None:  # noqa: ARG002
        self._check_process()
        self._loops.append(asyncio.get_running_loop())

    async def stop_worker(self, worker: Any) -> None:  # noqa: ARG002
        loop = asyncio.get_running_loop()
        waited = [*self._mark(), *(call for call, on in self._calls.copy().items() if on is loop)]
        try:
            if waited:
                await asyncio.wait([asyncio.wrap_future(call) for call in waited], timeout=_PATIENCE)
        finally:
            _cancel(waited)
            self._loops.remove(loop)

    def stop_app(self, app: Any) -> None:  # noqa: ARG002
        self._check_process()
        try:
            own = asyncio.get_running_loop()
        except RuntimeError:
            own = None
        # Whoever closes the app on an event loop, and not in a thread, cannot wait for that loop.
        calls = [call for call, loop in self._calls.copy().items() if loop is not own and loop.is_running()]
        waited = [*self._mark(), *calls]
        concurrent.futures.wait(waited, _PATIENCE)
        _cancel(waited)

    def _mark(self) -> list[Future[None]]:
        """What is done once the thread has called everything that waits for it now; nothing, if nothing does."""
        if self._thread is None or self._thread is threading.current_thread():
            return []
        mark: Future[None] = Future()
        self._queue.put((lambda _: _end(mark), Telemetry()))
        return [mark]

    def _hand_to_thread(self, fn: EventHook, event: Telemetry) -> None:
        self._check_process()
        if self._queue.qsize() >= _MOST_WAITING:
            self._tell_full()
            return
        self._queue.put((fn, event))
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=_call_each, args=(self._queue,), name="stepwell-events", daemon=True
                    )
                    self._thread.start()

    def _hand_to_loop(self, fn: EventHook, event: Telemetry) -> None:
        self._check_process()
        if len(self._calls) >= _MOST_WAITING:
            # A loop that was closed has left behind the calls that it had not begun.
            self._calls = {call: loop for call, loop in self._calls.copy().items() if not loop.is_closed()}
        if len(self._calls) >= _MOST_WAITING:
            self._tell_full()
            return
        call: Future[None] = Future()
        try:
            loop = self._loops[0] if self._loops else asyncio.get_running_loop()
            self._calls[call] = loop
            loop.call_soon_threadsafe(self._start, loop, fn, event, call)
        except RuntimeError:  # no loop runs here, or it is closed
            self._calls.pop(call, None)
            if not self._told_no_loop:
                self._told_no_loop = True
                logger.error("%r is async, and no event loop runs here: it misses %s", fn, type(event).__name__)

    def _start(self, loop: asyncio.AbstractEventLoop, fn: EventHook, event: Telemetry, call: Future[None]) -> None:
        task = loop.create_task(_call(fn, event))

        def ended(_: asyncio.Task[None]) -> None:
            self._calls.pop(call, None)
            _end(call)

        def cancel(call: Future[None]) -> None:
            if call.cancelled():
                with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                    loop.call_soon_threadsafe(task.cancel)

        task.add_done_callback(ended)
        call.add_done_callback(cancel)

    def _tell_full(self) -> None:
        # All functions of a kind share a queue, so this cannot say which of them is slow.
        if not self._told_full:
            self._told_full = True
            logger.error(
                "the functions of @app.on_event are too slow: %d events wait for them, and further ones are dropped",
                _MOST_WAITING,
            )


def _call_each(waiting: queue.SimpleQueue[tuple[EventHook, Telemetry]]) -> None:
    while True:
        fn, event = waiting.get()
        try:
            fn(event)
        except Exception:
            _failed(fn, event)


async def _call(fn: EventHook, event: Telemetry) -> None:
    try:
        await cast("Awaitable[object]", fn(event))
    except Exception:
        _failed(fn, event)


def _end(call: Future[None]) -> None:
    if call.set_running_or_notify_cancel():
        call.set_result(None)


def _cancel(calls: list[Future[None]]) -> None:
    """Cancel the calls that have not ended: a function that hangs would otherwise outlive the worker or the app."""
    for call in calls:
        call.cancel()


def _failed(fn: EventHook, event: Telemetry) -> None:
    logger.exception("%r failed with the event %s, and is called again with the next", fn, type(event).__name__)
