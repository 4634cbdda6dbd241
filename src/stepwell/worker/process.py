"""Plain functions in processes of their own, which are killed when their time is up. Nobody hears of the end of such a
run before its process is dead, or free for another: so no second run of the job can begin beside it.

Only text crosses the pipes: where the function stands, its args as JSON, its outcome and its progress as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import multiprocessing
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from stepwell.durable import log_filter
from stepwell.durable.log_filter import LoggedRun, log_as
from stepwell.errors import ConfigError, ProcessCrashed
from stepwell.execution.executor import execute_plain
from stepwell.execution.step_task import StepTask, chain_in_process, for_run
from stepwell.jobs.task import Task
from stepwell.postgres.threads import in_thread
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import HandedBack, Outcome

if TYPE_CHECKING:
    from pebble import ProcessPool


# Between SIGTERM and SIGKILL.
_TERM_GRACE = 1.0
_LOOK = 0.02
# How often to see whether a process still runs.
_CHECK = 0.5


class Pipe(Protocol):
    """An end of a pipe that multiprocessing hands to its processes."""

    def fileno(self) -> int: ...
    def close(self) -> None: ...


class Order(msgspec.Struct, frozen=True):
    """All a process needs to know to run a job."""

    module: str
    function: str
    """Of a step of a chain the name of the chain, which the module makes."""
    is_chain: bool
    job: ClaimedJob
    max_result_size: int


class Began(msgspec.Struct, frozen=True, tag=True):
    """A process begins to run a job."""

    job_id: str
    epoch: int
    pid: int


class Said(msgspec.Struct, frozen=True, tag=True):
    """A word on progress from a process."""

    job_id: str
    text: str


class Processes:
    """A pool of processes, started with the first job that needs one."""

    def __init__(self, size: int, said: Callable[[str, str], None]) -> None:
        self._size = size
        self._said = said
        self._pool: ProcessPool | None = None
        self._opening = asyncio.Lock()
        # The pool would hand on more jobs than it has processes for, and those could no longer be taken back.
        self._slots = asyncio.Semaphore(size)
        self._pids: dict[tuple[str, int], int] = {}
        self._pipes: tuple[Pipe, Pipe] | None = None
        self._rest = b""
        self._closed = False

    async def run(self, job: ClaimedJob, task: Task[..., Any], most: int, stopping: asyncio.Event) -> Outcome:
        """Run a job in a process, which is ended when `stopping` is set: it gets SIGTERM, and a second later SIGKILL.

        When this returns the function has ended, or its process has, whatever it did about signals. Raises
        `TimeoutError` when its time is up, and `ProcessCrashed` when the process has died by itself.
        """
        from pebble import ProcessExpired

        if not await self._enter(stopping):
            return HandedBack(0)
        try:
            pool = await self._open()
            if stopping.is_set():
                return HandedBack(0)
            place = (task.fn.__module__, task.fn.__qualname__, False)
            if isinstance(task, StepTask):
                place = (task.chain.module, task.chain.name, True)
            order = msgspec.json.encode(Order(*place, job, most)).decode()
            try:
                future: Future[str] = pool.schedule(_obey, args=[order], timeout=task.timeout)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
                return await self._outcome((job.id, job.epoch), future, stopping)
            except ProcessExpired as expired:
                # The pool's own handler of SIGTERM ends a process with that number as its exit code.
                code = expired.exitcode
                raise ProcessCrashed(-code if code == signal.SIGTERM else code) from None
            except BrokenProcessPool:
                # It was not this job that broke it: one that ran when its process died is told so.
                await self._close_pool(pool)
                return HandedBack(0)
        finally:
            self._pids.pop((job.id, job.epoch), None)
            self._slots.release()

    async def close(self) -> None:
        """End what still runs, and return when it has ended."""
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
        entering = asyncio.ensure_future(self._slots.acquire())
        stopped = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait([entering, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not entering.done():
                entering.cancel()
        return entering.done() and not entering.cancelled()

    async def _open(self) -> ProcessPool:
        """The pool, started if there is none, or none that works, without holding the event loop up."""
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
        from pebble import ProcessPool  # an extra; the worker has seen to it that it is there

        # Forking a process that has threads and connections copies locks nobody will release: spawn instead.
        context = multiprocessing.get_context("spawn")
        if self._pipes is None:
            self._pipes = cast("tuple[Pipe, Pipe]", context.Pipe(duplex=False))
            os.set_blocking(self._pipes[0].fileno(), False)
            asyncio.get_running_loop().add_reader(self._pipes[0].fileno(), self._read)
        pool = ProcessPool(
            max_workers=self._size,
            context=cast("Any", context),
            initializer=_begin,
            initargs=(self._pipes[1], log_filter.set_up_in_processes),
        )
        # The pool starts its processes with the first call.
        await in_thread(lambda: pool.schedule(_be_there).result())  # pyright: ignore[reportUnknownMemberType, reportUnknownLambdaType]
        return pool

    async def _close_pool(self, pool: ProcessPool) -> None:
        # The pool sees to one process after the other, and is patient with each.
        killer = asyncio.get_running_loop().call_later(_TERM_GRACE, self._kill, list(self._pids.values()))
        try:
            pool.stop()
            await in_thread(pool.join)
        finally:
            killer.cancel()

    async def _outcome(self, key: tuple[str, int], future: Future[str], stopping: asyncio.Event) -> Outcome:
        ended = asyncio.wrap_future(future)
        stopped = asyncio.ensure_future(stopping.wait())
        while not (ended.done() or stopped.done()):
            # Read first: a process that ends may have sent its answer before.
            gone = self._is_gone(key)
            await asyncio.wait([ended, stopped], timeout=_CHECK, return_when=asyncio.FIRST_COMPLETED)
            if gone and not ended.done():
                stopped.cancel()
                future.cancel()
                raise ProcessCrashed(0)
        stopped.cancel()
        if not ended.done():
            await in_thread(lambda: self._end(key, future))
            await asyncio.wait([ended])
        return HandedBack(0) if ended.cancelled() else msgspec.json.decode(ended.result(), type=Outcome)

    def _end(self, key: tuple[str, int], future: Future[str]) -> None:
        """Have the pool end a process, and wait until it has. Blocks: call it in a thread."""
        # One that is cancelled before it runs would be said to have ended at the moment in which it begins.
        while not (future.running() or future.done() or self._closed):
            time.sleep(_LOOK)
        future.cancel()
        killed = False
        asked_at = time.monotonic()
        # To `wait` a cancelled future is done when the pool has seen to it; to all others it is so at once.
        while not wait([future], _LOOK).done and not self._closed:
            if not killed and time.monotonic() - asked_at > _TERM_GRACE and (pid := self._pids.get(key)):
                killed = True
                self._kill([pid])

    def _is_gone(self, key: tuple[str, int]) -> bool:
        """Whether its process has ended. The pool says so of all but those that end with exit code 0."""
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
            said = msgspec.json.decode(line, type=Began | Said)
            if isinstance(said, Began):
                self._pids[said.job_id, said.epoch] = said.pid
            else:
                self._said(said.job_id, said.text)


# What follows runs in the process.

_pipe: Pipe | None = None
_set_up_logging: Callable[[], None] | None = None


def _begin(pipe: Pipe, set_up_logging: Callable[[], None] | None) -> None:
    global _pipe, _set_up_logging
    _pipe, _set_up_logging = pipe, set_up_logging
    os.set_blocking(pipe.fileno(), False)
    # Ctrl-C on a terminal reaches the whole group: what becomes of running jobs is for the worker to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _be_there() -> None:
    """Nothing but having been started."""


def _die_with_parent() -> None:
    """A worker that was killed cannot kill its processes: they must not go on without it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _say_who_runs(job: ClaimedJob) -> None:
    """Unlike a word on progress it must arrive: who ends the process looks it up."""
    assert _pipe is not None
    line = msgspec.json.encode(Began(job.id, job.epoch, os.getpid())) + b"\n"
    while True:
        try:
            os.write(_pipe.fileno(), line)
        except BlockingIOError:
            select.select([], [_pipe.fileno()], [])
        else:
            return


def _obey(encoded: str) -> str:
    order = msgspec.json.decode(encoded, type=Order)
    _say_who_runs(order.job)
    found = _find(order)
    _log_as_the_worker_does()
    task, job = for_run(found.for_job(order.job), order.job)

    def report(job: ClaimedJob, text: str) -> None:
        # No longer than a pipe takes in one piece: so processes cannot mix their lines, and need no lock to die with.
        line = msgspec.json.encode(Said(job.id, text)) + b"\n"
        if len(line) > select.PIPE_BUF:
            numbers = {key: value for key, value in msgspec.json.decode(text).items() if key != "message"}
            line = msgspec.json.encode(Said(job.id, msgspec.json.encode(numbers).decode())) + b"\n"
        if _pipe is not None:
            with contextlib.suppress(BlockingIOError):
                os.write(_pipe.fileno(), line)

    ctx = task.context_for(job, report, None)
    log_as(run := LoggedRun(job))
    try:
        outcome = execute_plain(task, job.args, ctx, order.max_result_size)
    finally:
        run.end()
    # An exception cannot be told in JSON: it stays here.
    return msgspec.json.encode(outcome, enc_hook=lambda _: None).decode()


def _find(order: Order) -> Task[..., Any]:
    found: Any = importlib.import_module(order.module)
    if order.is_chain:
        return chain_in_process(order.module, order.function)
    for name in order.function.split("."):
        found = getattr(found, name)
    if not isinstance(found, Task):
        raise ConfigError(
            f"{order.module}.{order.function} is not a task: with process=True the task must keep its name"
        )
    return cast("Task[..., Any]", found)


def _log_as_the_worker_does() -> None:
    """Once the module is imported, so that an app which sets up logging itself has done so."""
    global _set_up_logging
    set_up, _set_up_logging = _set_up_logging, None
    if set_up is not None:
        set_up()
