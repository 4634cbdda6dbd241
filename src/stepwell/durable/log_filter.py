"""Which job a log record was made in: the worker notes the run, and `JobLogFilter` adds it to records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar

from stepwell.durable.journal import Journal
from stepwell.values.job import ClaimedJob

_FIELDS = ("job_id", "task", "queue", "attempt")
_NONE = (None, None, None, None)


class JobLogFilter(logging.Filter):
    """Adds `job_id`, `task`, `queue` and `attempt` to each log record that is made while a job runs; elsewhere they are
    None. It lets every record pass.

    Put it on a handler, not on a logger: a logger's filters do not see the records of the loggers below it. With a
    `QueueHandler` put it there, since the handlers behind the queue run in another thread. `stepwell worker` adds it to
    the handlers of the root logger.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields that the record does not have."""
        known = record.__dict__
        # A record that names a job itself, by `extra`, may be about another one than the job that runs here.
        run = None if "job_id" in known else _run.get()
        for name, value in zip(_FIELDS, run.fields() if run is not None else _NONE, strict=True):
            known.setdefault(name, value)
        return True


class LoggedRun:
    """A run as log records name it. Once it has ended they no longer do: a task or connection that it has left behind
    in its context is not the job's, and must not keep the job in memory."""

    __slots__ = ("_job", "attempt")

    def __init__(self, job: ClaimedJob) -> None:
        self._job: ClaimedJob | None = job
        self.attempt = job.attempt if job.journal is None else None
        """As `ctx.attempt`; None: it is still to be read from the journal."""

    def fields(self) -> tuple[str, str, str, int] | tuple[None, None, None, None]:
        """What its records say. Any thread may ask, so this does not touch the journal that the handler works with."""
        job, attempt = self._job, self.attempt
        if job is None:
            return _NONE
        if attempt is None:
            try:
                attempt = Journal(job).first_attempt
            except Exception:  # the handler is told, once it comes to a step
                attempt = job.attempt
            self.attempt = attempt
        return job.id, job.task, job.queue, attempt

    def end(self) -> None:
        """The handler has ended."""
        self._job = None


_run: ContextVar[LoggedRun | None] = ContextVar("stepwell_run", default=None)


def log_as(run: LoggedRun) -> None:
    """From here on, in this context, log records are made by this run."""
    _run.set(run)


set_up_in_processes: Callable[[], None] | None = None
"""Sets up logging in the processes of tasks with `process=True`, as the worker's own process has it. It is pickled."""
