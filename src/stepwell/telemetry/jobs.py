"""Events of single jobs: claimed, run, written, handed back, rescued.

`worker/outcomes/outcome_table.py` says which event each outcome of a run makes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from stepwell.errors.text import error_line, user_location
from stepwell.telemetry.bus import TRACE, JobEvent, Telemetry, counted
from stepwell.values.duration import describe


class JobsClaimed(Telemetry, frozen=True):
    """A claim was answered."""

    level = logging.DEBUG
    worker_id: str
    queues: tuple[str, ...]
    count: int

    def text(self) -> str:
        return f"claimed {counted(self.count, 'job')} from {', '.join(self.queues)}"


class JobClaimed(JobEvent, frozen=True):
    """A worker has claimed a job, which may wait for a slot. The log has one line for all jobs of a claim."""

    level = TRACE
    worker_id: str
    line = "{0.job} is claimed"


class JobStarted(JobEvent, frozen=True):
    level = logging.DEBUG
    waited: float | None = None
    """How long the job was due before it started, in seconds, by the clocks of the database and the worker. None: it is
    not known, of a job with a fair key that was delayed or has run before."""
    line = "{0.job} started, attempt {0.attempt}"


class JobStopAsked(JobEvent, frozen=True):
    reason: str
    line = "{0.job} is asked to stop: {0.reason}"


class HandlerAbandoned(JobEvent, frozen=True):
    level = logging.ERROR
    reason: str = "timeout"
    """Why it was asked to stop."""

    def text(self) -> str:
        follows = (
            "the worker hands it back, and ends although its handler runs on"
            if self.reason == "shutdown"
            else "its outcome is written, but its handler runs on, and until it returns the worker runs one job less "
            "at a time"
        )
        return (
            f"{self.job} did not stop when asked: {follows}; look at ctx.cancelled in the handler, or declare the task "
            "with process=True so that it can be killed"
        )


# How runs end.


class EndedRunFacts(NamedTuple):
    """How one run ended, for counting."""

    task: str
    queue: str
    outcome: str
    """The counter of the outcome, as in `stepwell.stats`: succeeded, failed, cancelled, snoozed and so on."""
    seconds: float
    waited: float | None
    """As of `JobStarted`."""


class RunsEnded(Telemetry, frozen=True):
    """Runs have ended, in whichever way, and their outcomes were written, or refused. One event for all runs of a
    statement: an event for each, as `JobSucceeded` is, costs a subscriber several times as much."""

    level = TRACE
    runs: Sequence[EndedRunFacts]

    def text(self) -> str:
        return f"{counted(len(self.runs), 'run')} ended"


class JobSucceeded(JobEvent, frozen=True):
    level = logging.DEBUG
    seconds: float

    def text(self) -> str:
        return f"{self.job} succeeded in {self.seconds * 1000:.1f} ms"


class AttemptFailed(JobEvent, frozen=True):
    level = logging.ERROR
    max_attempts: int
    """The job's own limit, else its step's, else the task's."""
    reason: str
    type: str
    message: str
    traceback: str | None
    delay: float | None
    step: str | None = None
    """The step of a chain or durable function, or the state of a machine, that failed."""
    exception: BaseException | None = None
    """The exception of a final attempt, if it was raised in this process. Do not keep it: it holds its frames."""

    @property
    def final(self) -> bool:
        return self.delay is None or self.attempt >= self.max_attempts

    @property
    def own_level(self) -> int:
        return self.level if self.final else logging.WARNING

    def text(self) -> str:
        at = f" in {self.step!r}" if self.step else ""
        failure = f"{self.job} attempt {self.attempt} of {self.max_attempts} failed{at} ({self.reason}): "
        failure += error_line(self.type, self.message)
        if self.final:
            return f"{failure}; it is not tried again"
        location = user_location(self.traceback or "")
        return f"{failure}{f' at {location}' if location else ''}; next try in {describe(self.delay or 0)}"

    def detail(self) -> str | None:
        return self.traceback if self.final else None


class JobMisfit(JobEvent, frozen=True):
    """The job's args do not fit the code of this worker."""

    level = logging.WARNING
    message: str
    grace: float

    def text(self) -> str:
        return (
            f"{self.job} does not fit the code of this worker: {self.message}; it waits up to {describe(self.grace)} "
            "for a worker whose code accepts it, then fails"
        )


class CancelWritten(JobEvent, frozen=True):
    level = logging.DEBUG
    reason: str | None

    def text(self) -> str:
        return f"{self.job} is cancelled{f': {self.reason}' if self.reason else ''}"


class JobUndone(JobEvent, frozen=True):
    """The steps of a failed or cancelled job have been compensated."""

    level = logging.DEBUG
    line = "{0.job} is undone"


class JobSnoozed(JobEvent, frozen=True):
    level = logging.DEBUG
    delay: float

    def text(self) -> str:
        return f"{self.job} is snoozed for {describe(self.delay)}"


class JobHandedBack(JobEvent, frozen=True):
    level = logging.DEBUG
    line = "{0.job} is handed back, no attempt used"


class JobSuspended(JobEvent, frozen=True):
    level = logging.DEBUG
    line = "{0.job} is suspended"


class JobAdvanced(JobEvent, frozen=True):
    level = logging.DEBUG
    cursor: str
    line = "{0.job} goes on at {0.cursor}"


class JobRestarted(JobEvent, frozen=True):
    level = logging.DEBUG
    line = "{0.job} restarts with new args"


# Outcomes that could not be written.


class OutcomeRefused(JobEvent, frozen=True):
    level = logging.WARNING
    line = "the outcome of {0.job} came too late: another worker holds the job, or has ended it"


class OutcomeKept(JobEvent, frozen=True):
    level = logging.ERROR
    error: str
    delay: float
    line = "the outcome of {0.job} could not be written, trying again in {0.delay:g} s: {0.error}"


class OutcomesWritten(Telemetry, frozen=True):
    """A flush of outcomes was written."""

    level = TRACE
    count: int
    seconds: float
    line = "{0.count} outcomes were written"


class OutcomesHeldUp(Telemetry, frozen=True):
    level = logging.WARNING
    count: int
    line = (
        "{0.count} outcomes wait for a lock that is not on their jobs: look in pg_locks for the session that "
        "has locked a table of schema stepwell"
    )


class JobLocked(JobEvent, frozen=True):
    """A write waits for another session's lock on the job. `what` is "outcome", "step" or "transaction"."""

    level = logging.WARNING
    what: str
    pid: int | None
    """The session that holds the lock; None: unknown, or a prepared transaction."""
    role: str | None
    application: str | None
    since: str | None
    """When that session's transaction began."""

    def text(self) -> str:
        waits = f"the {self.what} of {self.job} waits for a lock"
        if self.role is None:
            return f"{waits}, and the session that holds it is unknown: look in pg_locks and pg_stat_activity"
        session = self.application if self.pid is None else f"session {self.pid} ({self.role}, {self.application!r})"
        since = f" since {self.since}" if self.since else ""
        end = "" if self.pid is None else f", or select pg_terminate_backend({self.pid})"
        return f"{waits} that {session} holds, in a transaction{since}: end that transaction{end}"


# Jobs that a worker hands back or takes over in numbers.


class JobsHandedBack(Telemetry, frozen=True):
    count: int

    def text(self) -> str:
        return f"handed back {counted(self.count, 'unstarted job')}, no attempt used"


class JobsRescued(Telemetry, frozen=True):
    level = logging.WARNING
    count: int

    def text(self) -> str:
        return f"rescued {counted(self.count, 'job')} from dead workers"


class RescuedJobFailed(JobEvent, frozen=True):
    """A job has failed permanently because its worker died on its last attempt. That worker cannot report it."""

    level = logging.ERROR
    message: str
    line = (
        "{0.job} has failed for good: {0.message}, and no attempt is left; if the job did "
        'not cause that, run "stepwell jobs retry {0.job_id}"'
    )


class JobBroken(JobEvent, frozen=True):
    """A job could not be promoted, and has failed."""

    level = logging.ERROR
    error: str
    line = "{0.job} has failed: {0.error}"
