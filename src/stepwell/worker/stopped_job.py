"""The outcome of a job that was asked to stop: by its timeout, a cancel, the worker's shutdown or a lost lease."""

from __future__ import annotations

from typing import assert_never

from stepwell.durable.backoff import pause_after
from stepwell.durable.time_limit import TimeLimitExpired
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
from stepwell.worker.running_job import RunningJob


def stands(run: RunningJob, outcome: Outcome) -> bool:
    """Whether the outcome of a run that was asked to stop counts all the same, because its work was done by then.

    A handler that saw that it was asked and returned has most likely stopped half-way: that is no success.
    """
    match outcome:
        case Succeeded():
            return not run.ctx.saw_cancelled
        case NothingToWrite() | Suspended() | Advanced() | Restarted() | Undone():
            return True
        case Failed() | Misfit() | Snoozed() | HandedBack() | Cancelled():
            return False
        case _:
            assert_never(outcome)


def stopped_outcome(run: RunningJob, outcome: Outcome | None = None) -> Outcome:
    """What is written of a job that was asked to stop. `outcome` is how its handler ended, if it did."""
    match run.stop_reason:
        case "timeout":
            return _timed_out(run, outcome)
        case "cancel":
            return Cancelled(None)
        case "shutdown":
            return HandedBack()
        case "lease" | None:
            return NothingToWrite()
        case _:
            assert_never(run.stop_reason)


def _timed_out(run: RunningJob, outcome: Outcome | None) -> Failed:
    error = TimeLimitExpired("it", run.task.timeout or 0)
    trace = None
    if isinstance(outcome, Failed):
        # It shows where the handler was.
        trace = outcome.traceback
        error.__traceback__ = outcome.error.__traceback__ if outcome.error else None
    attempt = run.ctx.counted_attempt
    delay = pause_after(error, run.task.retry, attempt, run.task.name)
    return Failed("timeout", "TimeoutError", str(error), trace, delay, attempt=attempt, error=error)
