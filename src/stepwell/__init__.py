"""Background jobs and durable steps for Python, kept in the Postgres you already run."""

from stepwell.app import App
from stepwell.branches import First
from stepwell.callable_task import AsyncContextTask, AsyncTask, SyncContextTask, SyncTask
from stepwell.chain import Chain, Step
from stepwell.context import Child, Context
from stepwell.duration import Duration
from stepwell.errors import (
    AmbiguousKey,
    BadArgs,
    BadValue,
    ConfigError,
    DatabaseError,
    DatabaseTimeout,
    DuplicateTask,
    EmbeddedError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    NotAwaited,
    ProcessCrashed,
    ScheduleNotFound,
    SchemaMismatch,
    StepChanged,
    StepFailed,
    StepNotFound,
    StepwellError,
    TooLarge,
    TooManySteps,
    WorkerNotFound,
)
from stepwell.handle import JobHandle
from stepwell.job import Failure, JobInfo, State
from stepwell.job_filter import JobFilters
from stepwell.journal import Drift
from stepwell.logs import JobLogFilter
from stepwell.machine import Machine
from stepwell.moves import Done, Next, Restart
from stepwell.outcome import Cancel, Fail, RetryIn, Snooze
from stepwell.policy import Keep
from stepwell.retry import Backoff, Retry
from stepwell.schedule import Catchup, Overlap, ScheduleInfo, Stale, Tick, When, preview
from stepwell.schedule_handle import ScheduleHandle
from stepwell.step import StepInfo, StepKind
from stepwell.sync_context import SyncChild, SyncContext
from stepwell.task import Call, Enqueuer, Task
from stepwell.transaction_step import SyncTransaction, Transaction
from stepwell.waits import Event
from stepwell.worker import Worker

__all__ = [
    "AmbiguousKey",
    "App",
    "AsyncContextTask",
    "AsyncTask",
    "Backoff",
    "BadArgs",
    "BadValue",
    "Call",
    "Cancel",
    "Catchup",
    "Chain",
    "Child",
    "ConfigError",
    "Context",
    "DatabaseError",
    "DatabaseTimeout",
    "Done",
    "Drift",
    "DuplicateTask",
    "Duration",
    "EmbeddedError",
    "Enqueuer",
    "Event",
    "Fail",
    "Failure",
    "First",
    "JobCancelled",
    "JobFailed",
    "JobFilters",
    "JobHandle",
    "JobInfo",
    "JobLogFilter",
    "JobNotFound",
    "Keep",
    "Machine",
    "Next",
    "NotAwaited",
    "Overlap",
    "ProcessCrashed",
    "Restart",
    "Retry",
    "RetryIn",
    "ScheduleHandle",
    "ScheduleInfo",
    "ScheduleNotFound",
    "SchemaMismatch",
    "Snooze",
    "Stale",
    "State",
    "Step",
    "StepChanged",
    "StepFailed",
    "StepInfo",
    "StepKind",
    "StepNotFound",
    "StepwellError",
    "SyncChild",
    "SyncContext",
    "SyncContextTask",
    "SyncTask",
    "SyncTransaction",
    "Task",
    "Tick",
    "TooLarge",
    "TooManySteps",
    "Transaction",
    "When",
    "Worker",
    "WorkerNotFound",
    "preview",
]
