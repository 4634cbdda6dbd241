"""Background jobs and durable steps for Python, kept in the Postgres you already run."""

import typing

from stepwell.app import App
from stepwell.calendar.schedule import Backfill, Catchup, Overlap, ScheduleInfo, Stale, Tick, When, preview
from stepwell.durable.backend import Drift
from stepwell.durable.children import Child
from stepwell.durable.concurrency import First
from stepwell.durable.context import Context
from stepwell.durable.log_filter import JobLogFilter
from stepwell.durable.sync_context import SyncChild, SyncContext
from stepwell.durable.transaction import SyncTransaction, Transaction
from stepwell.durable.waits import Event
from stepwell.errors import (
    AmbiguousKey,
    AppClosed,
    BadArgs,
    BadValue,
    CodecError,
    ConfigError,
    DatabaseError,
    DatabaseTimeout,
    DuplicateTask,
    EmbeddedError,
    GroupNotFound,
    JobCancelled,
    JobExists,
    JobFailed,
    JobNotFound,
    NotAwaited,
    NotUndone,
    ProcessCrashed,
    ScheduleNotFound,
    SchemaMismatch,
    StepChanged,
    StepFailed,
    StepNotFound,
    StepwellError,
    TaskNotFound,
    TooLarge,
    TooManySteps,
    WorkerNotFound,
)
from stepwell.flows.chain import Chain, Step
from stepwell.flows.machine import Machine
from stepwell.jobs.batch_task import AsyncBatchTask, SyncBatchTask
from stepwell.jobs.callable_task import AsyncContextTask, AsyncTask, SyncContextTask, SyncTask
from stepwell.jobs.enqueuer import Call, Enqueuer
from stepwell.jobs.filter import JobFilters
from stepwell.jobs.group import Group
from stepwell.jobs.handle import JobHandle
from stepwell.jobs.job_changes import Changes
from stepwell.jobs.task import Task
from stepwell.plugins.plugin import Plugin
from stepwell.resources.injected import Injected
from stepwell.schedules.handle import ScheduleHandle
from stepwell.values.admission import Fair, Limit
from stepwell.values.change import JobChange, JobProgress
from stepwell.values.directives import Done, Next, Restart
from stepwell.values.duration import Duration
from stepwell.values.failure_info import FailureInfo, FailureState
from stepwell.values.group import GroupFailure, GroupProgress, GroupResult, GroupSummary
from stepwell.values.job import Failure, JobInfo, State
from stepwell.values.limit_info import LimitInfo
from stepwell.values.outcome import Cancel, Fail, RateLimited, RetryIn, Snooze
from stepwell.values.policy import Keep
from stepwell.values.rate import Rate
from stepwell.values.retry import Backoff, Retry
from stepwell.values.sealing import ValueCodec
from stepwell.values.step import StepInfo, StepKind
from stepwell.values.unique import OnConflict, Scope, Unique
from stepwell.values.why import Cause, Why

if typing.TYPE_CHECKING:
    from stepwell.worker import Worker

__all__ = [
    "AmbiguousKey",
    "App",
    "AppClosed",
    "AsyncBatchTask",
    "AsyncContextTask",
    "AsyncTask",
    "Backfill",
    "Backoff",
    "BadArgs",
    "BadValue",
    "Call",
    "Cancel",
    "Catchup",
    "Cause",
    "Chain",
    "Changes",
    "Child",
    "CodecError",
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
    "FailureInfo",
    "FailureState",
    "Fair",
    "First",
    "Group",
    "GroupFailure",
    "GroupNotFound",
    "GroupProgress",
    "GroupResult",
    "GroupSummary",
    "Injected",
    "JobCancelled",
    "JobChange",
    "JobExists",
    "JobFailed",
    "JobFilters",
    "JobHandle",
    "JobInfo",
    "JobLogFilter",
    "JobNotFound",
    "JobProgress",
    "Keep",
    "Limit",
    "LimitInfo",
    "Machine",
    "Next",
    "NotAwaited",
    "NotUndone",
    "OnConflict",
    "Overlap",
    "Plugin",
    "ProcessCrashed",
    "Rate",
    "RateLimited",
    "Restart",
    "Retry",
    "RetryIn",
    "ScheduleHandle",
    "ScheduleInfo",
    "ScheduleNotFound",
    "SchemaMismatch",
    "Scope",
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
    "SyncBatchTask",
    "SyncChild",
    "SyncContext",
    "SyncContextTask",
    "SyncTask",
    "SyncTransaction",
    "Task",
    "TaskNotFound",
    "Tick",
    "TooLarge",
    "TooManySteps",
    "Transaction",
    "Unique",
    "ValueCodec",
    "When",
    "Why",
    "Worker",
    "WorkerNotFound",
    "preview",
]


def __getattr__(name: str) -> object:
    """Load the worker when it is first used: a program that only enqueues jobs starts without it."""
    if name != "Worker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from stepwell.worker import Worker

    globals()[name] = Worker
    return Worker


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
