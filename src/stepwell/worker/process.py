"""Plain functions in processes of their own, which are killed when their time is up.

Only text crosses the pipes: where the function stands, its args as JSON, its outcome and its progress as JSON.
"""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from stepwell.context import Context
from stepwell.errors import ConfigError
from stepwell.executor import execute_plain
from stepwell.job import ClaimedJob
from stepwell.outcome import Outcome
from stepwell.task import Task

if TYPE_CHECKING:
    from pebble import ProcessPool

# What a pipe takes in one piece, so that processes cannot mix their lines and need no lock to die with.
_LONGEST_LINE = 512


class Pipe(Protocol):
    """An end of a pipe that multiprocessing hands to its processes."""

    def fileno(self) -> int: ...
    def close(self) -> None: ...


class Order(msgspec.Struct, frozen=True):
    """All a process needs to know to run a job."""

    module: str
    function: str
    job_id: str
    queue: str
    args: str
    metadata: str | None
    attempt: int
    epoch: int
    deadline: float | None
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
        self._pipes: tuple[Pipe, Pipe] | None = None
        self._rest = b""

    def submit(self, job: ClaimedJob, task: Task[..., Any], deadline: float | None, most: int) -> Future[str]:
        """Start a job. Cancelling the future kills the process; one that dies by itself sets an exception."""
        pool = self._open()
        order = Order(
            task.fn.__module__,
            task.fn.__qualname__,
            job.id,
            job.queue,
            job.args,
            job.metadata,
            job.attempt,
            job.epoch,
            deadline,
            most,
        )
        return pool.schedule(_obey, args=[msgspec.json.encode(order).decode()], timeout=task.timeout)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    def close(self) -> None:
        """Kill what still runs."""
        if self._pool is not None:
            self._pool.stop()
            self._pool.join()
            self._pool = None
        if self._pipes is not None:
            asyncio.get_running_loop().remove_reader(self._pipes[0].fileno())
            for pipe in self._pipes:
                pipe.close()
            self._pipes = None

    def _open(self) -> ProcessPool:
        if self._pool is None:
            try:
                from pebble import ProcessPool
            except ImportError:
                raise ConfigError("tasks with process=True need pebble: pip install 'stepwell[process]'") from None
            # Forking a process that has threads and connections copies locks nobody will release: spawn instead.
            context = multiprocessing.get_context("spawn")
            reading, writing = self._pipes = cast("tuple[Pipe, Pipe]", context.Pipe(duplex=False))
            os.set_blocking(reading.fileno(), False)
            asyncio.get_running_loop().add_reader(reading.fileno(), self._read)
            self._pool = ProcessPool(
                max_workers=self._size,
                context=cast("Any", context),
                initializer=_begin,
                initargs=(writing,),
            )
        return self._pool

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
    threading.Thread(target=_die_with_parent, daemon=True).start()


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

    def report(text: str) -> None:
        line = msgspec.json.encode(Said(order.job_id, text)) + b"\n"
        if _pipe is not None and len(line) <= _LONGEST_LINE:
            os.write(_pipe.fileno(), line)

    task = cast("Task[..., Any]", found)
    ctx = Context(
        id=order.job_id,
        task=task.name,
        queue=order.queue,
        attempt=order.attempt,
        epoch=order.epoch,
        metadata=order.metadata,
        deadline=order.deadline,
        report=report,
    )
    return msgspec.json.encode(execute_plain(task, order.args, ctx, order.max_result_size)).decode()
