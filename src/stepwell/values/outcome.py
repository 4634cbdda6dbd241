"""How a run ended: exceptions with which a handler reports it, and the outcome as a value.

User code raises `Fail`, `RetryIn`, `Snooze`, `RateLimited` and `Cancel`. An `Outcome` is a plain value that the
executor makes and the worker writes. An outcome from a process of its own crosses the pipe as JSON.
"""

from __future__ import annotations

import msgspec

from stepwell.values.duration import Duration, seconds
from stepwell.values.public_call import public_value


class Fail(Exception):
    """Raised by a handler: the job failed permanently and is not retried."""


@public_value(countdown='the delay first, such as RetryIn("30s")', after='the delay first, such as RetryIn("30s")')
class RetryIn(Exception):
    """Raised by a handler: retry after this delay; the attempt counts."""

    def __init__(self, delay: Duration, reason: str = "") -> None:
        super().__init__(reason or f"try again in {delay}")
        self.delay = seconds(delay, "RetryIn(delay)")


@public_value(countdown='the delay first, such as Snooze("30s")', after='the delay first, such as Snooze("30s")')
class Snooze(Exception):
    """Raised by a handler: run the job again after this delay; the attempt does not count."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"snooze for {delay}")
        self.delay = seconds(delay, "Snooze(delay)")


@public_value(delay='retry_after="30s"', after='retry_after="30s"')
class RateLimited(Snooze):
    """Raised by a handler that was told "too many requests": no job of its rates starts for `retry_after`, and this job
    runs again after that. The attempt does not count."""

    def __init__(self, retry_after: Duration) -> None:
        super().__init__(seconds(retry_after, "RateLimited(retry_after)"))
        self.args = (f"too many requests: again in {retry_after}",)


class Cancel(Exception):
    """Raised by a handler: the job is no longer wanted; it ends as cancelled."""


OUTCOME_EXCEPTIONS = (Fail, Cancel, Snooze, RateLimited, RetryIn)
"""Exceptions with which a handler reports an outcome. No retry policy applies to them."""

# Stored errors and tracebacks name them as users import them, wherever this module is.
for _class in OUTCOME_EXCEPTIONS:
    _class.__module__ = "stepwell"


class Succeeded(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="outcome"):
    """The handler returned; `result` is its value as JSON."""

    result: str


class Failed(msgspec.Struct, frozen=True, tag=True, tag_field="outcome"):
    """The attempt failed. `delay` is the pause before the next attempt; None: there must be no other attempt."""

    reason: str
    type: str
    message: str
    traceback: str | None
    delay: float | None
    max_attempts: int | None = None
    """The limit of the step of a chain or the state of a machine; None: the task's limit applies."""
    attempt: int | None = None
    """The number of the attempt, counted by the step of a chain or since the last saved step; None: as in the claim."""
    step: str | None = None
    """The step that failed. Its saved error, if any, is deleted before the job is retried."""
    beside: tuple[str, ...] = ()
    """Steps that failed concurrently. Their saved errors are deleted too."""
    first_step: str | None = None
    """The step of a chain or the state of a machine that the job began with, if this is its outcome."""
    frame: str | None = None
    """The innermost function of user code that raised the error. It is a part of the failure's fingerprint."""
    backoff_error: str | None = None
    """Why the back-off function gave no delay."""
    error: BaseException | None = None
    """The exception itself, for the log. It does not cross the pipe, and is dropped while the outcome waits to be
    written."""


class Misfit(msgspec.Struct, frozen=True, tag=True, tag_field="outcome"):
    """The args do not fit the code of this worker, but other code may fit. If none claims the job in time: `failed`."""

    failed: Failed


class Snoozed(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="outcome"):
    """The handler asked to run later; the attempt does not count. `closes`: its rates admit nothing until then.
    `first_step` is that of `Failed`."""

    delay: float
    closes: bool = False
    first_step: str | None = None


class HandedBack(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="outcome"):
    """The worker hands the job back, the attempt uncounted: the worker stops, or the job could not begin."""

    delay: float = 0.0


class Cancelled(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="outcome"):
    """The job ends as cancelled."""

    reason: str | None


class NothingToWrite(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="outcome"):
    """Nothing is left to write: the handler's own transaction wrote and committed `written`. None: another run holds
    the job, or has ended it."""

    written: Succeeded | Advanced | None = None


class Suspended(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="outcome"):
    """Suspend the job until its waits end; `wait` is the argument of stepwell.suspend, as JSON."""

    wait: str


class Advanced(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="outcome"):
    """Hand back a job of a chain or machine, to continue at `cursor`: after a delay, in another queue, or by itself."""

    left: str | None
    cursor: str
    input: str
    n: int
    delay: float | None
    queue: str | None
    priority: int | None = None
    """The new priority; None: unchanged, as with the queue."""


class Restarted(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="outcome"):
    """Start the job over with these args and no saved steps."""

    args: str


class Undone(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="outcome"):
    """The steps of a job that failed or was cancelled have been compensated, so the job ends now."""


Outcome = (
    Succeeded
    | Failed
    | Misfit
    | Snoozed
    | HandedBack
    | Cancelled
    | NothingToWrite
    | Suspended
    | Advanced
    | Restarted
    | Undone
)
