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
    ScheduleNotFound,
    SchemaMismatch,
    StepwellError,
    WorkerNotFound,
)
from stepwell.handle import JobHandle
from stepwell.job import Failure, JobInfo, State
from stepwell.outcome import Cancel, Fail, RetryIn, Snooze
from stepwell.retry import Backoff, Retry
from stepwell.schedule import Catchup, Overlap, ScheduleInfo, Stale, Tick, When, preview
from stepwell.schedule_handle import ScheduleHandle
from stepwell.task import Call, Enqueuer, Task
from stepwell.worker import Worker

__all__ = [
    "App",
    "Backoff",
    "BadArgs",
    "Call",
    "Cancel",
    "Catchup",
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
    "Overlap",
    "Retry",
    "RetryIn",
    "ScheduleHandle",
    "ScheduleInfo",
    "ScheduleNotFound",
    "SchemaMismatch",
    "Snooze",
    "Stale",
    "State",
    "StepwellError",
    "Task",
    "Tick",
    "When",
    "Worker",
    "WorkerNotFound",
    "preview",
]
