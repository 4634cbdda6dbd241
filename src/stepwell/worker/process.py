"""Plain functions in processes of their own, which are killed when their time is up.

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
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from stepwell.aside import aside
from stepwell.errors import ConfigError
from stepwell.executor import execute_plain
from stepwell.job import ClaimedJob
from stepwell.outcome import Outcome
from stepwell.task import Task

if TYPE_CHECKING:
    from pebble import ProcessPool


class Pipe(Protocol):
    """An end of a pipe that multiprocessing hands to its processes."""

    def fileno(self) -> int: ...
    def close(self) -> None: ...


class Order(msgspec.Struct, frozen=True):
    """All a process needs to know to run a job."""

    module: str
    function: str
    job: ClaimedJob
    max_result_size: int


class Said(msgspec.Struct, frozen=True):
    """A word on progress from a process."""

    job_id: str
    text: str


class Processes:
    """A pool of processes, started with the first job that needs one."""

    def __init__(self, size: int, said: Callable[[str, str], None]) -> None:
        self._size = size
        self._said = said
        self._pool: ProcessPool | None = None
        self._opening: asyncio.Task[None] | None = None
        self._pipes: tuple[Pipe, Pipe] | None = None
        self._rest = b""

    def submit(self, job: ClaimedJob, task: Task[..., Any], most: int) -> Future[str]:
        """Start a job. Cancelling the future kills the process; one that dies by itself sets an exception."""
        assert self._pool is not None
        order = Order(task.fn.__module__, task.fn.__qualname__, job, most)
        return self._pool.schedule(_obey, args=[msgspec.json.encode(order).decode()], timeout=task.timeout)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    async def open(self) -> None:
        """Start the processes, if that was not done, without holding the event loop up."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        await asyncio.shield(self._opening)

    async def close(self) -> None:
        """Kill what still runs."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.stop()
            await aside(pool.join)
        if self._pipes is not None:
            asyncio.get_running_loop().remove_reader(self._pipes[0].fileno())
            for pipe in self._pipes:
                pipe.close()
            self._pipes = None

    async def _open(self) -> None:
        from pebble import ProcessPool  # an extra; the worker has seen to it that it is there

        # Forking a process that has threads and connections copies locks nobody will release: spawn instead.
        context = multiprocessing.get_context("spawn")
        reading, writing = self._pipes = cast("tuple[Pipe, Pipe]", context.Pipe(duplex=False))
        os.set_blocking(reading.fileno(), False)
        asyncio.get_running_loop().add_reader(reading.fileno(), self._read)
        pool = self._pool = ProcessPool(
            max_workers=self._size, context=cast("Any", context), initializer=_begin, initargs=(writing,)
        )
        # The pool starts its processes with the first call.
        await aside(lambda: pool.schedule(_be_there).result())  # pyright: ignore[reportUnknownMemberType, reportUnknownLambdaType]

    def _read(self) -> None:
        assert self._pipes is not None
        *lines, self._rest = (self._rest + os.read(self._pipes[0].fileno(), 65536)).split(b"\n")
        for line in lines:
            said = msgspec.json.decode(line, type=Said)
            self._said(said.job_id, said.text)


def decode_outcome(encoded: str) -> Outcome:
    """The outcome a process sent."""
    return msgspec.json.decode(encoded, type=Outcome)


# What follows runs in the process.

_pipe: Pipe | None = None


def _begin(pipe: Pipe) -> None:
    global _pipe
    _pipe = pipe
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


def _obey(encoded: str) -> str:
    order = msgspec.json.decode(encoded, type=Order)
    found: Any = importlib.import_module(order.module)
    for name in order.function.split("."):
        found = getattr(found, name)
    if not isinstance(found, Task):
        raise ConfigError(
            f"{order.module}.{order.function} is not a task: with process=True the task must keep its name"
        )

    def report(job: ClaimedJob, text: str) -> None:
        # No longer than a pipe takes in one piece: so processes cannot mix their lines, and need no lock to die with.
        line = msgspec.json.encode(Said(job.id, text)) + b"\n"
        if len(line) > select.PIPE_BUF:
            numbers = {key: value for key, value in msgspec.json.decode(text).items() if key != "message"}
            line = msgspec.json.encode(Said(job.id, msgspec.json.encode(numbers).decode())) + b"\n"
        if _pipe is not None:
            with contextlib.suppress(BlockingIOError):
                os.write(_pipe.fileno(), line)

    task = cast("Task[..., Any]", found)
    ctx = task.context_for(order.job, report, None)
    return msgspec.json.encode(execute_plain(task, order.job.args, ctx, order.max_result_size)).decode()
