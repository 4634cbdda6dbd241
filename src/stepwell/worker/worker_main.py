"""Run one worker in this process: its event loop, the signals that stop it, and an exit that nothing can block."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

from stepwell.app import App
from stepwell.errors import ConfigError, DatabaseError
from stepwell.postgres.errors import is_transient
from stepwell.postgres.hints import translated
from stepwell.supervisor import exit_codes
from stepwell.supervisor.lifeline import LifelineListener
from stepwell.worker.process_limits import LimitWatch, ProcessLimits
from stepwell.worker.worker import Worker

_PATIENCE = 1.0
# The loop's own, and those in which the runner calls plain functions.
_THREADS = ("stepwell-thread", "stepwell-task", "stepwell-step")
# Python's default thresholds, which an app may have changed, suit programs with few objects. A worker makes thousands
# for each batch of jobs, and reference counting frees nearly all: collecting that often took a sixth of the time.
_PYTHONS_THRESHOLDS = (700, 2000)
_THRESHOLD = 20_000


def run_worker(
    app: App,
    worker: Worker,
    lifeline: LifelineListener | None = None,
    limits: ProcessLimits | None = None,
    *,
    wait: bool = True,
    report: Callable[[Exception], None],
) -> int:
    """Run the worker until a signal, its supervisor or a limit stops it; return the exit code.

    The first SIGTERM or SIGINT drains, the second hands back running jobs, the third ends the process on the spot.
    Handlers that did not stop when asked are abandoned: this then ends the process and does not return. Without `wait`,
    a database that is away at the start counts as a refusal. `report` gets the error that ended the worker.
    """
    if gc.get_threshold()[0] in _PYTHONS_THRESHOLDS:
        gc.freeze()
        gc.set_threshold(_THRESHOLD, *gc.get_threshold()[1:])
    loop = _new_loop()
    threads = ThreadPoolExecutor(thread_name_prefix=_THREADS[0])
    loop.set_default_executor(threads)
    _listen_for_signals(loop, worker)
    if lifeline is not None:
        lifeline.control(loop, worker)
    watch = LimitWatch(worker, limits or ProcessLimits(), app.events)
    # Not by a subscription: with a subscriber, the worker builds every event that nobody else would read.
    started = loop.create_task(worker.started())
    code = exit_codes.TROUBLE
    try:
        with translated(app.database):
            loop.run_until_complete(_run(app, worker, watch, started))
        code = exit_codes.RECYCLE if watch.reached else exit_codes.DONE
    except Exception as error:
        report(error)
        if lifeline is not None and isinstance(error, ConfigError):
            code = exit_codes.MISCONFIGURED
        elif lifeline is not None and _was_refused(error, started, wait=wait):
            code = exit_codes.REFUSED
    threads.shutdown(wait=False, cancel_futures=True)
    if _cancel_tasks(loop) and _threads_end():
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        return code
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _run(app: App, worker: Worker, watch: LimitWatch, started: asyncio.Task[None]) -> None:
    tasks = [asyncio.create_task(watch.run()), started]
    try:
        await worker.run()
    finally:
        for task in tasks:
            task.cancel()
        await app.aclose()


def _was_refused(error: Exception, started: asyncio.Task[None], *, wait: bool) -> bool:
    """Whether the database refused a worker that had not started."""
    cause = error.__cause__
    passes = wait and cause is not None and is_transient(cause)
    has_started = started.done() and not started.cancelled()
    return isinstance(error, DatabaseError) and not has_started and not passes


def _listen_for_signals(loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
    """Set Python's signal handlers, not the loop's: Python calls them even while a job blocks the loop."""
    steps = [worker.stop, worker.stop_now]

    def receive(number: int, _: FrameType | None) -> None:
        if not steps:
            os._exit(128 + number)
        step = steps.pop(0)
        if not loop.is_closed():
            loop.call_soon_threadsafe(step)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores it
            signal.signal(number, receive)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> bool:
    """Cancel the tasks left on the loop; False if one does not end in time."""
    tasks = asyncio.all_tasks(loop)
    if not tasks:
        return True
    for task in tasks:
        task.cancel()
    _, left = loop.run_until_complete(asyncio.wait(tasks, timeout=_PATIENCE))
    return not left


def _threads_end() -> bool:
    """Wait a moment for the threads that ran jobs; False if one goes on. Python would wait for the loop's at exit."""
    deadline = time.monotonic() + _PATIENCE
    for thread in threading.enumerate():
        if thread.name.startswith(_THREADS):
            thread.join(max(deadline - time.monotonic(), 0))
            if thread.is_alive():
                return False
    return True
