"""How a run ended: what a handler may raise to say so, and the value that becomes of it.

`Fail`, `RetryIn`, `Snooze` and `Cancel` are raised by the user's code. An `Outcome` is a plain value that the
executor makes and the worker writes; it also crosses the pipe from a process, as JSON.
"""

from __future__ import annotations

import msgspec

from stepwell.values.duration import Duration, seconds


class Fail(Exception):
    """Raised by a handler: the job failed for good, do not try again."""


class RetryIn(Exception):
    """Raised by a handler: try again after this delay; the attempt counts."""

    def __init__(self, delay: Duration, reason: str = "") -> None:
        super().__init__(reason or f"try again in {delay}")
        self.delay = seconds(delay, "RetryIn(delay)")


class Snooze(Exception):
    """Raised by a handler: run the job again after this delay; the attempt does not count."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"snooze for {delay}")
        self.delay = seconds(delay, "Snooze(delay)")


class Cancel(Exception):
    """Raised by a handler: the job is no longer wanted; it ends as cancelled."""


SAYING = (Fail, Cancel, Snooze, RetryIn)
"""What a handler raises to say how it went: these are taken at their word."""


class Succeeded(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="outcome"):
    """The handler returned; `result` is its value as JSON."""

    result: str


class Failed(msgspec.Struct, frozen=True, tag=True, tag_field="outcome"):
    """The attempt did not succeed. `delay` is the pause before the next try; None: there must be none."""

    reason: str
    type: str
    message: str
    traceback: str | None
    delay: float | None
    max_attempts: int | None = None
    """What the step of a chain or the state of a machine allows; None: what the task does."""
    attempt: int | None = None
    """Which counted try it was, by the step of a chain or since the last saved step; None: as the claim counted."""
    step: str | None = None
    """The step it failed at. If an error of it was saved, that is taken away before the job is tried again."""
    beside: tuple[str, ...] = ()
    """Those that failed beside it, of which the same is so."""
    error: BaseException | None = None
    """The exception itself, for the log; it does not cross the pipe, and is not kept while the outcome waits to be
    written."""


class Misfit(msgspec.Struct, frozen=True, tag=True, tag_field="outcome"):
    """The args do not fit the code of this worker: other code may take them. `failed` is the failure that it becomes if
    none comes."""

    failed: Failed


class Snoozed(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="outcome"):
    """The handler asked to run later, the attempt uncounted."""

    delay: float


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
    """Give the job back until what it waits for has come; `wait` is what stepwell.suspend takes, as JSON."""

    wait: str


class Advanced(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="outcome"):
    """Give a job of a chain or machine back, to go on at `cursor`: after a delay, in another queue, or by itself."""

    left: str | None
    cursor: str
    input: str
    n: int
    delay: float | None
    queue: str | None
    priority: int | None = None
    """From there on; None: as it was, as with the queue."""


class Restarted(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="outcome"):
    """Begin the job again with these args and no steps."""

    args: str


class Undone(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="outcome"):
    """The steps of a job that failed or was cancelled have been undone: now it ends."""


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
