"""A pool of processes for tasks with `process=True`, which are killed when their time is up.

A run ends here only when its process is dead, or free for another job: so no second run of the job can begin beside it.
`process_main` is the code that runs in the processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, cast

import msgspec

from stepwell.durable import log_filter
from stepwell.durable.time_limit import TimeLimitExpired
from stepwell.errors import ConfigError, ProcessCrashed, StepwellError
from stepwell.execution.step_task import StepTask
from stepwell.jobs.task import Task
from stepwell.postgres.threads import begin_in_thread, in_thread
from stepwell.values.job import ClaimedJob
from stepwell.values.log_line import LogLine
from stepwell.values.outcome import HandedBack, Outcome
from stepwell.worker.process_main import Began, Logged, Pipe, Reported, RunRequest, begin, do_nothing, run_request
from stepwell.worker.script_end import outlast_cancels

if TYPE_CHECKING:
    from pebble import ProcessPool


# Between SIGTERM and SIGKILL.
_TERM_GRACE = 1.0
_LOOK = 0.02
# How often to see whether a process still runs.
_CHECK = 0.5


def refuse_in_process() -> None:
    """Raise `ConfigError` in a process that imports the script of its worker, which would start another worker here."""
    # As multiprocessing itself finds it out, to refuse further processes.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError(
            "a process of a task with process=True imports this script, and the script starts a worker: put the code "
            'that starts it under: if __name__ == "__main__":'
        )


class Processes:
    """A pool of processes, started with the first job that needs one."""

    def __init__(self, size: int, report: Callable[[ClaimedJob, str], None], log: Callable[[LogLine], None]) -> None:
        self._size = size
        self._report = report
        self._log = log
        self._pool: ProcessPool | None = None
        self._opening = asyncio.Lock()
        # The pool would accept more jobs than it has processes for, and those could no longer be handed back.
        self._free = asyncio.Semaphore(size)
        self._jobs: dict[tuple[str, int], ClaimedJob] = {}
        self._pids: dict[tuple[str, int], int] = {}
        self._pipes: tuple[Pipe, Pipe] | None = None
        self._rest = b""
        self._closed = False

    async def run(self, job: ClaimedJob, task: Task[..., Any], most: int, stopping: asyncio.Event) -> Outcome:
        """Run a job in a process, which gets SIGTERM when `stopping` is set, and a second later SIGKILL. When this
        returns the function has ended, or its process has, even if it ignores signals. Raises `TimeLimitExpired` when
        the task's timeout is over, and `ProcessCrashed` when the process died by itself."""
        from pebble import ProcessExpired

        if not await self._enter(stopping):
            return HandedBack()
        try:
            self._jobs[job.id, job.epoch] = job
            pool = await self._open()
            if stopping.is_set():
                return HandedBack()
            place = (task.fn.__module__, task.fn.__qualname__, False)
            if isinstance(task, StepTask):
                place = (task.chain.module, task.chain.name, True)
            request = msgspec.json.encode(RunRequest(*place, job, most)).decode()
            try:
                future: Future[str] = pool.schedule(run_request, args=[request], timeout=task.timeout)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
                return await self._outcome((job.id, job.epoch), future, stopping)
            except TimeoutError as error:  # the pool's: it measures from when the function began
                raise TimeLimitExpired("it", task.timeout or 0) from error
            except ProcessExpired as expired:
                # The pool's own handler of SIGTERM ends a process with that number as its exit code.
                code = expired.exitcode
                raise ProcessCrashed(-code if code == signal.SIGTERM else code) from None
            except BrokenProcessPool:
                # Another job broke the pool: a job whose own process dies gets `ProcessExpired`.
                await self._close_pool(pool)
                return HandedBack()
        finally:
            self._jobs.pop((job.id, job.epoch), None)
            self._pids.pop((job.id, job.epoch), None)
            self._free.release()

    def where(self, job: ClaimedJob) -> str:
        """What can be said about where the handler of a job is: it is in another process."""
        pid = self._pids.get((job.id, job.epoch))
        if pid is None:
            return "it waits for a process to be free"
        return (
            f"it runs in a process of its own, pid {pid} on the machine of the worker, and the worker cannot see its "
            f"stack: 'py-spy dump --pid {pid}' shows it there"
        )

    async def close(self) -> None:
        async with self._opening:
            pool, self._pool = self._pool, None
            if pool is not None:
                await self._close_pool(pool)
            self._closed = True
        if self._pipes is not None:
            asyncio.get_running_loop().remove_reader(self._pipes[0].fileno())
            for pipe in self._pipes:
                pipe.close()
            self._pipes = None

    async def _enter(self, stopping: asyncio.Event) -> bool:
        """Wait for a process to be free. False: the job was asked to stop meanwhile."""
        entering = asyncio.ensure_future(self._free.acquire())
        stopped = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait([entering, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not entering.done():
                entering.cancel()
        return entering.done() and not entering.cancelled()

    async def _open(self) -> ProcessPool:
        """The pool, started if there is none that works, without blocking the event loop."""
        async with self._opening:
            if self._closed:
                raise RuntimeError("the worker has ended")
            if self._pool is not None and not self._pool.active:
                await self._close_pool(self._pool)
                self._pool = None
            if self._pool is None:
                self._pool = await self._new_pool()
            return self._pool

    async def _new_pool(self) -> ProcessPool:
        from pebble import ProcessPool  # an extra; the worker has checked that it is installed

        # Forking a process that has threads and connections copies locks that no thread will release: spawn instead.
        context = multiprocessing.get_context("spawn")
        if self._pipes is None:
            self._pipes = cast("tuple[Pipe, Pipe]", context.Pipe(duplex=False))
            os.set_blocking(self._pipes[0].fileno(), False)
            asyncio.get_running_loop().add_reader(self._pipes[0].fileno(), self._read)
        pool = ProcessPool(
            max_workers=self._size,
            context=cast("Any", context),
            initializer=begin,
            initargs=(self._pipes[1], log_filter.set_up_in_processes),
        )
        # The pool starts its processes with the first call.
        starting = begin_in_thread(lambda: pool.schedule(do_nothing).result())  # pyright: ignore[reportUnknownMemberType, reportUnknownLambdaType]
        try:
            await asyncio.shield(starting)
        except BrokenProcessPool:
            await self._close_pool(pool)
            raise StepwellError(
                "the processes for tasks with process=True died while they started: standard error says why"
            ) from None
        except asyncio.CancelledError:
            # Nobody waits for either any more: that the pool is broken then is no news.
            starting.add_done_callback(lambda done: done.cancelled() or done.exception())
            pool.stop()
            begin_in_thread(pool.join)
            raise
        return pool

    async def _close_pool(self, pool: ProcessPool) -> None:
        # The pool ends one process after the other, and waits for each.
        killer = asyncio.get_running_loop().call_later(_TERM_GRACE, self._kill, list(self._pids.values()))
        try:
            pool.stop()
            await in_thread(pool.join)
        finally:
            killer.cancel()

    async def _outcome(self, key: tuple[str, int], future: Future[str], stopping: asyncio.Event) -> Outcome:
        """Wait for the process. If this is cancelled, as by asyncio at the end of a script, end the process first."""
        cancel: asyncio.CancelledError | None = None
        ended = asyncio.wrap_future(future)
        stopped = asyncio.ensure_future(stopping.wait())
        while not (ended.done() or stopped.done()):
            # Looked at before the wait: a process that has ended may have sent its answer first.
            gone = self._is_gone(key)
            try:
                await asyncio.wait([ended, stopped], timeout=_CHECK, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError as cancelled:
                cancel = cancelled
                break
            if gone and not ended.done():
                stopped.cancel()
                future.cancel()
                raise ProcessCrashed(0)
        stopped.cancel()
        if not ended.done():
            await outlast_cancels(begin_in_thread(lambda: self._end(key, future)))
            with contextlib.suppress(asyncio.CancelledError):
                await outlast_cancels(ended)
        if not ended.cancelled():
            return msgspec.json.decode(ended.result(), type=Outcome)
        if cancel is not None:
            raise cancel
        return HandedBack()

    def _end(self, key: tuple[str, int], future: Future[str]) -> None:
        """Have the pool end a process, and wait until it has ended. Blocks: call it in a thread."""
        # If a future is cancelled before it runs, the pool reports it as ended when its process begins the job.
        while not (future.running() or future.done() or self._closed):
            time.sleep(_LOOK)
        future.cancel()
        killed = False
        asked_at = time.monotonic()
        # Only `wait` reports a cancelled future as done after the pool has ended its process; `done()` is true at once.
        while not wait([future], _LOOK).done and not self._closed:
            if not killed and time.monotonic() - asked_at > _TERM_GRACE and (pid := self._pids.get(key)):
                killed = True
                self._kill([pid])

    def _is_gone(self, key: tuple[str, int]) -> bool:
        """Whether the job's process has ended. The pool does not report a process that ends with exit code 0."""
        try:
            if pid := self._pids.get(key):
                os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    def _kill(self, pids: list[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _read(self) -> None:
        assert self._pipes is not None
        *lines, self._rest = (self._rest + os.read(self._pipes[0].fileno(), 65536)).split(b"\n")
        for line in lines:
            message = msgspec.json.decode(line, type=Began | Reported | Logged)
            if isinstance(message, Began):
                self._pids[message.job_id, message.epoch] = message.pid
            elif isinstance(message, Logged):
                self._keep(message)
            elif (job := self._jobs.get((message.job_id, message.epoch))) is not None:
                self._report(job, message.text)

    def _keep(self, logged: Logged) -> None:
        line = logged.line
        if logged.dropped:
            said = f"{logged.dropped} lines were dropped here: the pipe from the process was full"
            self._log(msgspec.structs.replace(line, level=logging.WARNING, logger="stepwell", message=said))
        self._log(line)
