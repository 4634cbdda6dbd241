"""Name the running job in log records: the worker notes the run, and `JobLogFilter` adds it to records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any

from stepwell.durable.journal import read_journal
from stepwell.values.job import ClaimedJob

_FIELDS = ("job_id", "task", "queue", "attempt")
_NONE = (None, None, None, None)


class JobLogFilter(logging.Filter):
    """Adds `job_id`, `task`, `queue` and `attempt` to each log record made while a job runs. In other records they are
    None. It lets every record pass.

    Put it on a handler, not on a logger: a logger's filters do not see the records of the loggers below it. Put it on a
    `QueueHandler` itself, since the handlers behind the queue run in another thread. `stepwell worker` adds it to the
    handlers of the root logger.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields that the record does not have."""
        known = record.__dict__
        # A record that names a job itself, by `extra`, may be about another job than the running one.
        run = None if "job_id" in known else _run.get()
        for name, value in zip(_FIELDS, run.fields() if run is not None else _NONE, strict=True):
            known.setdefault(name, value)
        return True


class LoggedRun:
    """A run as log records name it, until it ends: a task or connection that the handler left behind in its context
    must neither log as the job nor keep the job in memory."""

    __slots__ = ("_job", "attempt", "sink")

    def __init__(self, job: ClaimedJob, sink: Callable[[Any], None] | None = None) -> None:
        self._job: ClaimedJob | None = job
        self.sink = sink
        """Takes the run's log records, as `run_logs.LogLine`; None: they are not kept."""
        self.attempt = job.attempt if job.journal is None else None
        """As `ctx.attempt`, or None until it is read from the journal."""

    def fields(self) -> tuple[str, str, str, int] | tuple[None, None, None, None]:
        """The values of the fields. Any thread may ask, so this does not touch the handler's own journal."""
        job, attempt = self._job, self.attempt
        if job is None:
            return _NONE
        if attempt is None:
            try:
                attempt = 1 if read_journal(job).progressed else job.attempt
            except Exception:  # raised again by the handler's first step
                attempt = job.attempt
            self.attempt = attempt
        return job.id, job.task, job.queue, attempt

    def end(self) -> None:
        self._job = None


class LoggedBatch:
    """A call for several jobs as log records name it: by the task and the queue, which its jobs share."""

    __slots__ = ("_names",)

    def __init__(self, job: ClaimedJob) -> None:
        self._names: tuple[str, str] | None = (job.task, job.queue)

    def fields(self) -> tuple[None, str | None, str | None, None]:
        task, queue = self._names or (None, None)
        return None, task, queue, None

    def end(self) -> None:
        self._names = None


_run: ContextVar[LoggedRun | LoggedBatch | None] = ContextVar("stepwell_run", default=None)


def log_as(run: LoggedRun | LoggedBatch) -> None:
    _run.set(run)


def current_run() -> LoggedRun | LoggedBatch | None:
    """The run whose code this is."""
    return _run.get()


def run_in(context: Context) -> LoggedRun | LoggedBatch | None:
    """The run whose code has this context."""
    return context.get(_run)


set_up_in_processes: Callable[[], None] | None = None
"""Sets up logging in the processes of `process=True` tasks as in the worker's own process. It is pickled."""
