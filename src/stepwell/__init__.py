"""Background jobs for Python, kept in the Postgres you already run."""

from stepwell.app import App, Keep
from stepwell.context import Context
from stepwell.duration import Duration
from stepwell.errors import (
    BadArgs,
    ConfigError,
    DatabaseError,
    DuplicateTask,
    EmbeddedError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    SchemaMismatch,
    StepwellError,
)
from stepwell.handle import JobHandle
from stepwell.job import Failure, JobInfo, State
from stepwell.outcome import Cancel, Fail, RetryIn, Snooze
from stepwell.retry import Backoff, Retry
from stepwell.task import Call, Enqueuer, Task
from stepwell.worker import Worker

__all__ = [
    "App",
    "Backoff",
    "BadArgs",
    "Call",
    "Cancel",
    "ConfigError",
    "Context",
    "DatabaseError",
    "DuplicateTask",
    "Duration",
    "EmbeddedError",
    "Enqueuer",
    "Fail",
    "Failure",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "JobInfo",
    "JobNotFound",
    "Keep",
    "Retry",
    "RetryIn",
    "SchemaMismatch",
    "Snooze",
    "State",
    "StepwellError",
    "Task",
    "Worker",
]
