"""A worker as a process: its event loop, the signals that stop it, and an end that nothing can hold up."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

from stepwell.app import App
from stepwell.cli import exits
from stepwell.cli.lifeline import Obeying
from stepwell.cli.output import complain
from stepwell.cli.recycle import Limits, Recycling
from stepwell.cli.session import explained
from stepwell.errors import ConfigError, DatabaseError, StepwellError
from stepwell.postgres.errors import is_transient
from stepwell.worker import Worker

_PATIENCE = 1.0
# Ours, and those that the runner has for plain handlers.
_THREADS = ("stepwell-thread", "stepwell-task", "stepwell-step")
# Python's own thresholds, unless the app has set another, are for programs with few objects at once. Here thousands are
# made for each batch of jobs, and nearly all go by themselves: to look among them so often took a sixth of the time.
_PYTHONS_THRESHOLDS = (700, 2000)
_THRESHOLD = 20_000


def run(
    app: App,
    worker: Worker,
    supervisor: Obeying | None = None,
    limits: Limits | None = None,
    *,
    wait: bool = True,
) -> int:
    """Run the worker until a signal, its supervisor or a limit stops it, and return the exit code.

    The first SIGTERM or SIGINT drains, the second hands back what runs, a third ends the process on the spot. Handlers
    that did not stop when asked are left behind: then this ends the process itself and does not return. Without `wait`
    a database that is away at the start is as final as one that refuses the worker.
    """
    if gc.get_threshold()[0] in _PYTHONS_THRESHOLDS:
        gc.freeze()
        gc.set_threshold(_THRESHOLD, *gc.get_threshold()[1:])
    loop = _new_loop()
    threads = ThreadPoolExecutor(thread_name_prefix=_THREADS[0])
    loop.set_default_executor(threads)
    _Signals(loop, worker).listen()
    if supervisor is not None:
        supervisor.obey_with(loop, worker)
    recycling = Recycling(worker, limits or Limits())
    beginning = _Beginning(worker)
    code = exits.TROUBLE
    try:
        with explained(app.database):
            loop.run_until_complete(_work(app, worker, recycling, beginning))
        code = exits.RECYCLE if recycling.due else exits.DONE
    except StepwellError as error:
        complain(str(error))
        if supervisor is not None and isinstance(error, ConfigError):
            code = exits.MISCONFIGURED
        elif supervisor is not None and beginning.was_refused(error, wait=wait):
            code = exits.REFUSED
    except Exception:
        traceback.print_exc()
    threads.shutdown(wait=False, cancel_futures=True)
    if _cancel_tasks(loop) and _threads_end():
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        return code
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _work(app: App, worker: Worker, recycling: Recycling, beginning: _Beginning) -> None:
    watching = [asyncio.create_task(recycling.watch()), asyncio.create_task(beginning.watch())]
    try:
        await worker.run()
    finally:
        for watch in watching:
            watch.cancel()
        await app.aclose()


class _Beginning:
    """Whether a worker has begun to work, or the database has refused it before that."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._over = False

    async def watch(self) -> None:
        # Not by an event: with a subscriber the worker makes all those that otherwise nobody hears.
        await self._worker.started()
        self._over = True

    def was_refused(self, error: StepwellError, *, wait: bool) -> bool:
        cause = error.__cause__
        passes = wait and cause is not None and is_transient(cause)
        return isinstance(error, DatabaseError) and not self._over and not passes


class _Signals:
    """Python's own handlers, not the loop's: they are called even while a job blocks the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
        self._loop = loop
        self._steps = [worker.stop, worker.stop_now]

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def _receive(self, number: int, _: FrameType | None) -> None:
        if not self._steps:
            os._exit(128 + number)
        step = self._steps.pop(0)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(step)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> bool:
    """Cancel what still runs on the loop; False if something would not end."""
    tasks = asyncio.all_tasks(loop)
    if not tasks:
        return True
    for task in tasks:
        task.cancel()
    _, left = loop.run_until_complete(asyncio.wait(tasks, timeout=_PATIENCE))
    return not left


def _threads_end() -> bool:
    """Wait a moment for the threads that jobs ran in; False if one goes on, for Python would wait for it at exit."""
    deadline = time.monotonic() + _PATIENCE
    for thread in threading.enumerate():
        if thread.name.startswith(_THREADS):
            thread.join(max(deadline - time.monotonic(), 0))
            if thread.is_alive():
                return False
    return True
