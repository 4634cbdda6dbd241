"""Threads that the end of Python does not wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(Executor):
    """At most `most` threads, started as they are needed. Unlike those of `ThreadPoolExecutor`, they are daemons: when
    a worker has handed back a job whose handler does not stop, the program can end although the thread still runs."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._started = 0
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the threads are closed")
            # A thread that cannot be started raises before the call is in line: it must not run later.
            if not self._idle.acquire(blocking=False) and self._started < self._most:
                threading.Thread(target=self._work, name=f"{self._name}_{self._started}", daemon=True).start()
                self._started += 1
            self._calls.put((future, partial(fn, *args, **kwargs)))
        return future

    def close(self) -> None:
        """Cancel the calls that have not begun, and let the threads end. It does not wait for them."""
        with self._lock:
            self._closed = True
            with suppress(Empty):
                # Without waiting: a thread that becomes free takes calls, too.
                while waiting := self._calls.get_nowait():
                    waiting[0].cancel()
            for _ in range(self._started):
                self._calls.put(None)

    def _work(self) -> None:
        while taken := self._calls.get():
            future, call = taken
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            # An idle thread must not keep the arguments, nor the frame of an error its own future.
            del taken, future, call
            self._idle.release()
