"""A job in a slot, and its outcome if it was asked to stop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, assert_never

from stepwell.durable.job_context import JobContext, run_of
from stepwell.durable.log_filter import LoggedRun
from stepwell.durable.time_limit import TimeLimitExpired
from stepwell.jobs.task import Task, TaskKind
from stepwell.plugins.run import StopReason
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import (
    Advanced,
    Cancelled,
    Failed,
    HandedBack,
    Misfit,
    NothingToWrite,
    Outcome,
    Restarted,
    Snoozed,
    Succeeded,
    Suspended,
    Undone,
)
from stepwell.values.retry import pause_after
from stepwell.worker.waited import waited_until


@dataclass(slots=True, eq=False)
class RunningJob:
    """A job in a slot. Only its runner, on the event loop, changes it."""

    job: ClaimedJob
    task: Task[..., Any]
    ctx: JobContext
    logged: LoggedRun
    handler: asyncio.Task[None] | None = None
    stop_process: asyncio.Event | None = None
    """Set to end the process that the job runs in; None: it runs in this one."""
    timer: asyncio.TimerHandle | None = None
    stop_reason: StopReason | None = None
    late_stop: StopReason | None = None
    """Why it was asked to stop while its transaction was ending. It counts only if the handler runs again."""
    started: bool = False
    began: float = 0.0
    finishing: bool = False
    """The handler has ended, and can no longer be stopped."""
    abandoned: bool = False
    """Its outcome is written, though its handler still runs."""

    def begin(self, ctx: JobContext) -> None:
        """A step of a chain begins, with a context of its own."""
        if self.stop_reason is not None:
            run_of(ctx).ask_to_stop()
        self.ctx = ctx
        self.logged.attempt = ctx.attempt

    @property
    def attempt(self) -> int:
        """The attempt that its events name, as the handler sees it."""
        return self.ctx.attempt

    @property
    def never_started(self) -> bool:
        """Whether it never will: at the end of a script, asyncio has cancelled it before its first step."""
        return not self.started and self.handler is not None and self.handler.done()

    @property
    def kind(self) -> TaskKind:
        return self.task.kind

    @property
    def waited(self) -> float | None:
        """How long the job was due before it started, in seconds; None: it is not known."""
        return waited_until(self.began, self.job, self.task)

    @property
    def about(self) -> tuple[str, str, str, int]:
        return self.job.id, self.job.task, self.job.queue, self.attempt


def stands(outcome: Outcome, *, saw_cancelled: bool) -> bool:
    """Whether the outcome of a run that was asked to stop is written as it is. A handler that read `ctx.cancelled` and
    returned has most likely stopped half-way: that is no success."""
    match outcome:
        case Succeeded():
            return not saw_cancelled
        case NothingToWrite() | Suspended() | Advanced() | Restarted() | Undone():
            return True
        case Failed() | Misfit() | Snoozed() | HandedBack() | Cancelled():
            return False
        case _:
            assert_never(outcome)


def stopped_outcome(run: RunningJob, outcome: Outcome | None = None) -> Outcome:
    """The outcome to write for a job that was asked to stop. `outcome`: that of its handler; None: it still runs."""
    return outcome_of_stop(run.stop_reason, run.task, run_of(run.ctx).counted_attempt, outcome)


def outcome_of_stop(
    reason: StopReason | None, task: Task[..., Any], attempt: int, outcome: Outcome | None = None
) -> Outcome:
    """The same, for a run of this task with this attempt that was asked to stop for this reason."""
    match reason:
        case "timeout":
            return _timed_out(task, attempt, outcome)
        case "cancel":
            return Cancelled(None)
        case "shutdown":
            return HandedBack()
        case "lease" | None:
            return NothingToWrite()
        case _:
            assert_never(reason)


def _timed_out(task: Task[..., Any], attempt: int, outcome: Outcome | None) -> Failed:
    error = TimeLimitExpired("it", task.timeout or 0)
    trace = None
    if isinstance(outcome, Failed):
        # It shows where the handler was.
        trace = outcome.traceback
        error.__traceback__ = outcome.error.__traceback__ if outcome.error else None
    delay, wrong = pause_after(error, task.retry, attempt)
    return Failed(
        "timeout", "TimeoutError", str(error), trace, delay, attempt=attempt, backoff_error=wrong, error=error
    )
