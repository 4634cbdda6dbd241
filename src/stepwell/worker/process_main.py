"""The process side of tasks with `process=True`: run the requested job, and report its outcome and progress.

Only text crosses the pipes: the function's place, its args, outcome and progress as JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import multiprocessing
import os
import select
import signal
import threading
from collections.abc import Callable
from multiprocessing.util import Finalize
from typing import Any, Protocol, cast

import msgspec

from stepwell.durable.log_filter import LoggedRun, log_as
from stepwell.durable.run_logs import RunLogHandler
from stepwell.errors import ConfigError
from stepwell.execution.executor import execute_plain
from stepwell.execution.step_task import chain_in_process, for_run
from stepwell.jobs.task import Task
from stepwell.resources.opened import ProcessResources, use
from stepwell.values.job import ClaimedJob
from stepwell.values.log_line import LogLine


class Pipe(Protocol):
    """One end of a pipe that multiprocessing hands to its processes."""

    def fileno(self) -> int: ...
    def close(self) -> None: ...


class RunRequest(msgspec.Struct, frozen=True):
    """Everything that a process needs to run a job."""

    module: str
    function: str
    """For a step of a chain, the name of the chain, which the module defines."""
    is_chain: bool
    job: ClaimedJob
    max_result_size: int


class Began(msgspec.Struct, frozen=True, tag=True):
    """A process begins to run a job."""

    job_id: str
    epoch: int
    pid: int


class Logged(msgspec.Struct, frozen=True, tag=True):
    """A handler in a process has logged a line. `dropped` lines before it did not fit into the pipe."""

    line: LogLine
    dropped: int = 0


class Reported(msgspec.Struct, frozen=True, tag=True):
    """A process reports the progress of a job."""

    job_id: str
    epoch: int
    text: str


_pipe: Pipe | None = None
_set_up_logging: Callable[[], None] | None = None


def begin(pipe: Pipe, set_up_logging: Callable[[], None] | None) -> None:
    global _pipe, _set_up_logging
    _pipe, _set_up_logging = pipe, set_up_logging
    os.set_blocking(pipe.fileno(), False)
    # Ctrl-C on a terminal reaches the whole process group, as does its end. The worker decides what becomes of jobs.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def do_nothing() -> None:
    """Called so that the pool starts its processes."""


def _die_with_parent() -> None:
    """End with the worker: one that was killed cannot kill its processes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _report_pid(job: ClaimedJob) -> None:
    """Report which job runs here. Unlike progress this must arrive: the worker needs the pid to end the process."""
    assert _pipe is not None
    line = msgspec.json.encode(Began(job.id, job.epoch, os.getpid())) + b"\n"
    while True:
        try:
            os.write(_pipe.fileno(), line)
        except BlockingIOError:
            select.select([], [_pipe.fileno()], [])
        else:
            return


def run_request(encoded: str) -> str:
    request = msgspec.json.decode(encoded, type=RunRequest)
    _report_pid(request.job)
    found = _find(request)
    _log_as_the_worker_does()
    task, job = for_run(found.for_job(request.job, lambda _: None), request.job)  # the worker has told of it
    use(_resources_of(found))

    def report(job: ClaimedJob, text: str) -> None:
        # No longer than a pipe takes in one piece: so processes cannot mix their lines, and need no lock, which a
        # killed process would never release.
        line = msgspec.json.encode(Reported(job.id, job.epoch, text)) + b"\n"
        if len(line) > select.PIPE_BUF:
            numbers = {key: value for key, value in msgspec.json.decode(text).items() if key != "message"}
            line = msgspec.json.encode(Reported(job.id, job.epoch, msgspec.json.encode(numbers).decode())) + b"\n"
        if _pipe is not None:
            with contextlib.suppress(BlockingIOError):
                os.write(_pipe.fileno(), line)

    ctx = task.context_for(job, report, None)
    sink = _LogSender().send if task.logs else None
    handler = None if sink is None else RunLogHandler(sink)
    log_as(run := LoggedRun(job, sink))
    if handler is not None:
        logging.getLogger().addHandler(handler)
    try:
        outcome = execute_plain(task, job.args, ctx, request.max_result_size)
    finally:
        run.end()
        if handler is not None:
            logging.getLogger().removeHandler(handler)
    # An exception has no JSON form: it stays here.
    return msgspec.json.encode(outcome, enc_hook=lambda _: None).decode()


class _LogSender:
    """Sends the log lines of a run to the worker, in pieces that a pipe takes whole. It never waits: while the pipe is
    full, lines are dropped and counted."""

    def __init__(self) -> None:
        self._dropped = 0

    def send(self, line: LogLine) -> None:
        encoded = _encode(line, self._dropped)
        room = len(line.message)
        while len(encoded) > select.PIPE_BUF and room:
            room //= 2
            cut = msgspec.structs.replace(line, message=line.message[:room] + "…", logger=line.logger[:200])
            encoded = _encode(cut, self._dropped)
        try:
            assert _pipe is not None
            os.write(_pipe.fileno(), encoded)
            self._dropped = 0
        except BlockingIOError:
            self._dropped += 1


def _encode(line: LogLine, dropped: int) -> bytes:
    return msgspec.json.encode(Logged(line, dropped)) + b"\n"


_resources: dict[int, ProcessResources] = {}


def _resources_of(task: Task[..., Any]) -> ProcessResources:
    """The resources of the task's app in this process, which are closed when it ends."""
    declared = task.job_store.resources
    if id(declared) not in _resources:
        made = _resources[id(declared)] = ProcessResources(declared)
        # Processes of multiprocessing do not call what atexit has.
        Finalize(None, made.close, exitpriority=10)
    return _resources[id(declared)]


def _find(request: RunRequest) -> Task[..., Any]:
    found: Any = importlib.import_module(request.module)
    if request.is_chain:
        return chain_in_process(request.module, request.function)
    for name in request.function.split("."):
        found = getattr(found, name)
    if not isinstance(found, Task):
        raise ConfigError(
            f"{request.module}.{request.function} is not a task: with process=True the task must keep its name"
        )
    return cast("Task[..., Any]", found)


def _log_as_the_worker_does() -> None:
    """Set up logging once the task's module is imported: an app that sets up logging itself has done so by then."""
    global _set_up_logging
    set_up, _set_up_logging = _set_up_logging, None
    if set_up is not None:
        set_up()
