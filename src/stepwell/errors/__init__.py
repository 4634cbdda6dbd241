"""Every error Stepwell raises.

    StepwellError
    ├── ConfigError          the app, the worker or a call is wrong: a person must fix it; never retried
    │   ├── DuplicateTask    two tasks with one name
    │   └── TaskNotFound     `app.tasks` has no task of this name (also a KeyError)
    ├── DatabaseError        the database cannot be used: a person must fix it
    │   ├── DatabaseTimeout  the server gave no answer, or no connection, within `App(call_timeout=)`
    │   └── SchemaMismatch   the schema is missing, or older or newer than this stepwell needs
    ├── EmbeddedError        the embedded Postgres did not start
    ├── AppClosed            the app was closed while a caller waited
    ├── BadArgs              args do not fit the task's signature, or cannot be encoded (also a TypeError)
    │   ├── MisfitArgs       stored args have an argument that the task does not know, or lack one that it needs
    │   └── TooLarge         the database refuses a value of this size
    ├── CodecError           a codec of the app could not seal a value, or open a stored one
    ├── BadValue             a result, or the value of a step, cannot be stored; never retried
    ├── JobNotFound          the job does not exist, or is no longer kept
    ├── JobExists            another job has the unique key
    ├── GroupNotFound        the group does not exist, or is no longer kept
    ├── ScheduleNotFound     no such schedule
    ├── WorkerNotFound       no such worker is registered
    ├── JobFailed            raised by `result()`, and by `await child`: the job failed permanently
    ├── JobCancelled         raised by `result()`, and by `await child`: the job was cancelled
    ├── ProcessCrashed       the process of a task with `process=True` ended before the function returned
    ├── StepNotFound         the job has no such step
    ├── StepFailed           the saved error of a step, raised again on replay
    ├── NotAwaited           a handler returned without awaiting a step or wait that it had made
    ├── NotUndone            the replay that compensates a job did not reach all of its steps
    ├── AmbiguousKey         two steps of a job could be confused on replay
    ├── StepChanged          a saved step is now of another kind, or has other arguments and `drift` is "fail"
    └── TooManySteps         a job has saved more steps than it may: end with `Restart`

The exceptions with which a handler reports an outcome (`Fail`, `RetryIn`, `Snooze`, `RateLimited`, `Cancel`) are not
errors: see `stepwell.values.outcome`. A wait that timed out raises the builtin `TimeoutError`. The module `text` writes
errors as text.
"""

from __future__ import annotations

import signal
from typing import Any

from stepwell.errors.text import describe_exit, error_line


class StepwellError(Exception):
    """The base class of all errors that Stepwell raises."""


class ConfigError(StepwellError):
    """The app, the worker or a call is wrong; the message says what to change. A job that raises it is not retried."""


class DuplicateTask(ConfigError):
    """Two tasks were registered under one name."""


class TaskNotFound(ConfigError, KeyError):
    """The app has no task of this name."""

    # A KeyError would show the message in quotes.
    __str__ = Exception.__str__


class DatabaseError(StepwellError):
    """The database cannot be used; the message says what a person must do."""


class DatabaseTimeout(DatabaseError):
    """The server gave no answer, or no connection, within `App(call_timeout=)`. The message says whether the call may
    have been carried out."""


class SchemaMismatch(DatabaseError):
    """The schema is missing, or older or newer than this version of Stepwell can work with."""


class EmbeddedError(StepwellError):
    """The embedded Postgres could not be started; the message says why and what to do."""


class AppClosed(StepwellError):
    """The app was closed while a caller waited for a job. The job itself is not affected."""


class BadArgs(StepwellError, TypeError):
    """The arguments do not fit the task's signature or cannot be encoded. A call that raises this has
    enqueued nothing."""

    def __init__(self, *args: object, reason: str | None = None) -> None:
        super().__init__(*args)
        self.reason = reason
        """Why stored args do not fit, without the task that they were stored for."""


class TooLarge(BadArgs):
    """The database refuses a value of this size; the message names the limit, and the command that raises it.

    `kind` says which limit it is, as `stepwell sizes` lists them; `size` is the value's size in bytes.
    """

    def __init__(self, *args: object, kind: str | None = None, size: int | None = None) -> None:
        super().__init__(*args)
        self.kind = kind
        self.size = size


class MisfitArgs(BadArgs):
    """Stored args have an argument that the task does not know, or lack one that it needs. Other code may fit them."""


class CodecError(StepwellError):
    """A codec of the app could not seal a value, or open a stored one: it lacks the codec, or a key."""


class BadValue(StepwellError):
    """A result or the value of a step cannot be stored; the message says which one, and why. Never retried."""


class JobNotFound(StepwellError, LookupError):
    """The job does not exist: it was never committed, or its history has expired."""


WHY_NO_JOB = "it was never committed, or its history is no longer kept"


def no_such_job(job_id: object) -> JobNotFound:
    return JobNotFound(f"there is no job {job_id}: {WHY_NO_JOB}")


class JobExists(StepwellError):
    """Another job has the unique key, so nothing was enqueued or retried; of a batch, nothing at all.

    `job` is the handle of the other job. If two items of one list have the same key, the message says so, and the other
    job is the first of them, which was not enqueued either: `job.exists()` is false.
    """

    job: Any

    def __init__(self, message: str, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id


class GroupNotFound(StepwellError, LookupError):
    """The group does not exist: it was never committed, or it ended long ago and is no longer kept."""


class ScheduleNotFound(StepwellError, LookupError):
    """The schedule does not exist in the database."""


class WorkerNotFound(StepwellError, LookupError):
    """The worker is not registered: it has stopped, or never existed."""


class JobFailed(StepwellError):
    """The job failed permanently. `type`, `message` and `traceback` are those of the last attempt."""

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

    `exit_code` is as in `subprocess`: negative for a signal, such as -11 for SIGSEGV. To not retry crashes, name this
    class in `Retry(never_on=...)`.
    """

    def __init__(self, exit_code: int) -> None:
        why = ", perhaps because the machine ran out of memory" if exit_code == -signal.SIGKILL else ""
        super().__init__(f"the process {describe_exit(exit_code)}{why}")
        self.exit_code = exit_code


class StepNotFound(StepwellError, LookupError):
    """The job has no such step: `job.info().steps` lists its steps."""


class StepFailed(StepwellError):
    """A step failed in an earlier run and the handler went on. On replay the step raises its saved error again.

    The exception is also an instance of the original class, if that is known, but only the message is left of it.
    `type` is the name of that class. `final`: the step has no attempts left under its own policy.
    """

    def __init__(self, key: str, type: str, message: str, *, final: bool = False) -> None:  # noqa: A002
        # Not super(): the original class is mixed in and may take other arguments.
        Exception.__init__(self, message)
        self.key = key
        self.type = type
        self.message = message
        self.final = final

    def __str__(self) -> str:
        return self.message


class NotAwaited(StepwellError):
    """A handler made a step or a wait and returned without awaiting it, so it did not run. The attempt fails."""


class NotUndone(StepwellError):
    """A job that failed or was cancelled has ended without compensating these steps: the replay did not reach them. It
    is in the job's error, and nothing raises it."""


class AmbiguousKey(StepwellError):
    """Two steps of a job could be confused on replay; the message says how to tell them apart."""


class StepChanged(StepwellError):
    """A saved step is now called with other arguments, and `drift` is "fail"; or it is now of another kind."""


class TooManySteps(StepwellError):
    """A job has saved more steps than it may: end with `Restart`, or split the job."""
