"""Every error Stepwell raises.

    StepwellError
    ├── ConfigError          the app, the worker or a call is wrong: a person must fix it; never tried again
    │   └── DuplicateTask    two tasks with one name
    ├── DatabaseError        the database cannot be used as it is: a person must fix it
    │   ├── DatabaseTimeout  it gave no answer, or no connection, within `App(call_timeout=)`
    │   └── SchemaMismatch   its schema is older or newer than this stepwell needs
    ├── EmbeddedError        the embedded Postgres did not start
    ├── BadArgs              args do not fit the task's signature, or do not encode (a TypeError, too)
    │   ├── MisfitArgs       stored args have an argument that the task does not know, or lack one that it needs
    │   └── TooLarge         the database refuses a value of this size
    ├── BadValue             a result, or the value of a step, cannot be stored; never tried again
    ├── JobNotFound          no such job, or it is no longer kept
    ├── ScheduleNotFound     no such schedule
    ├── WorkerNotFound       no such worker is registered
    ├── JobFailed            raised by `result()`, and by `await child`: the job failed for good
    ├── JobCancelled         raised by `result()`, and by `await child`: the job was cancelled
    ├── ProcessCrashed       the process of a task with `process=True` ended before the function returned
    ├── StepNotFound         the job has no such step
    ├── StepFailed           a saved error of a step, raised again when the job is resumed
    ├── NotAwaited           a handler returned without awaiting a step or wait that it had made
    ├── AmbiguousKey         two steps of a job could be taken for each other
    ├── StepChanged          a saved step is of another kind now, or has other arguments and `drift` is "fail"
    └── TooManySteps         a job has saved more than it may: end with `Restart`

What a handler raises to say how it went is not an error and stands apart, in `stepwell.outcome`.
A wait that ran out raises the builtin `TimeoutError`.
"""

from __future__ import annotations

import signal

from stepwell.error_text import describe_exit, error_line


class StepwellError(Exception):
    """The root of all errors raised by Stepwell."""


class ConfigError(StepwellError):
    """The app, the worker or a call is wrong; the message says what to change. A job that raises it fails for good."""


class DuplicateTask(ConfigError):
    """Two tasks were registered under one name."""


class DatabaseError(StepwellError):
    """The database cannot be used as it is; the message says what a person must do."""


class DatabaseTimeout(DatabaseError):
    """The database gave no answer, or no connection, within `App(call_timeout=)`. The message says whether the call may
    have been carried out."""


class SchemaMismatch(DatabaseError):
    """The schema is older or newer than this version of Stepwell can work with."""


class EmbeddedError(StepwellError):
    """The embedded Postgres could not be started; the message says why and what to do."""


class BadArgs(StepwellError, TypeError):
    """The arguments do not fit the task's signature or cannot be encoded. Nothing was enqueued."""

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        """Why stored args do not fit, without the task that they were stored for."""


class TooLarge(BadArgs):
    """The database refuses a value of this size; the message names the limit, and the command that raises it."""


class MisfitArgs(BadArgs):
    """Stored args have an argument that the task does not know, or lack one that it needs: other code may take them."""


class BadValue(StepwellError):
    """A result or the value of a step cannot be stored; the message says whose, and why. Never tried again."""


class JobNotFound(StepwellError, LookupError):
    """There is no such job: it was never committed, or its history has expired."""


WHY_NO_JOB = "it was never committed, or its history is not kept any more"


def no_such_job(job_id: object) -> JobNotFound:
    """The error that nothing is known of a job."""
    return JobNotFound(f"there is no job {job_id}: {WHY_NO_JOB}")


class ScheduleNotFound(StepwellError, LookupError):
    """There is no such schedule in the database."""


class WorkerNotFound(StepwellError, LookupError):
    """No such worker is registered: it has stopped, or was never there."""


class JobFailed(StepwellError):
    """The job failed for good. `type`, `message` and `traceback` are the last attempt's."""

    def __init__(self, job_id: str, task: str, type: str, message: str, traceback: str | None) -> None:  # noqa: A002
        super().__init__(f"job {job_id} ({task}) failed: {error_line(type, message)}")
        self.job_id = job_id
        self.task = task
        self.type = type
        self.message = message
        self.traceback = traceback


class JobCancelled(StepwellError):
    """The job was cancelled before it could succeed."""

    def __init__(self, job_id: str, task: str, reason: str | None) -> None:
        super().__init__(f"job {job_id} ({task}) was cancelled" + (f": {reason}" if reason else ""))
        self.job_id = job_id
        self.task = task
        self.reason = reason


class ProcessCrashed(StepwellError):
    """The process of a task with `process=True` ended before the function returned. The attempt fails with this error.

    `exit_code` is as `subprocess` gives it: negative for a signal, such as -11 for SIGSEGV. Name the class in
    `Retry(never_on=...)` if a crash is not to be tried again.
    """

    def __init__(self, exit_code: int) -> None:
        why = ", perhaps because the machine ran out of memory" if exit_code == -signal.SIGKILL else ""
        super().__init__(f"the process {describe_exit(exit_code)}{why}")
        self.exit_code = exit_code


class StepNotFound(StepwellError, LookupError):
    """The job has no such step: see its steps in `job.info().steps`."""


class StepFailed(StepwellError):
    """A step failed in an earlier run, and the job went on: it is raised again, as the error that it was.

    It is an instance of the error's own class, too, where that is known, but of it only the message is left. `type` is
    the name of the class. One that is `final` has been tried as often as the step's own policy allows.
    """

    def __init__(self, key: str, type: str, message: str, *, final: bool = False) -> None:  # noqa: A002
        # Not super(): the error's own class, which is mixed in, may want other arguments.
        Exception.__init__(self, message)
        self.key = key
        self.type = type
        self.message = message
        self.final = final

    def __str__(self) -> str:
        return self.message


class NotAwaited(StepwellError):
    """A handler has made a step or a wait, and returned without awaiting it: it was not run. The attempt fails."""


class AmbiguousKey(StepwellError):
    """Two steps of a job could be taken for each other when it is resumed; the message says how to tell them apart."""


class StepChanged(StepwellError):
    """A step that was saved is now called with other arguments, and `drift` is "fail"; or it is of another kind now."""


class TooManySteps(StepwellError):
    """A job has saved more steps than one may: end with `Restart`, or split it."""
