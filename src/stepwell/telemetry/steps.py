"""Events of durable jobs: their steps, their compensation, and the policies of jobs."""

from __future__ import annotations

import logging

from stepwell.telemetry.bus import JobEvent, Telemetry, counted


class JobResumed(JobEvent, frozen=True):
    level = logging.DEBUG
    steps: int

    def text(self) -> str:
        return f"{self.job} resumes with {counted(self.steps, 'saved step')}"


class StepSaved(JobEvent, frozen=True):
    level = logging.DEBUG
    key: str
    kind: str
    seconds: float | None
    failed: bool

    def text(self) -> str:
        return f"{self.job} saved step {self.key} with its {'error' if self.failed else 'value'}"


class ManySteps(JobEvent, frozen=True):
    level = logging.WARNING
    steps: int
    most: int

    def text(self) -> str:
        return (
            f"{self.job} has {self.steps} steps, and every replay reads them all; the job fails at {self.most}: return "
            "Restart(...) before that"
        )


class StepDrifted(JobEvent, frozen=True):
    level = logging.WARNING
    key: str
    drift: str

    def text(self) -> str:
        then = "the step runs again" if self.drift == "rerun" else "its saved value is used"
        return f"step {self.key} of {self.job} was saved with other arguments: {then}"


class SuspensionCaught(JobEvent, frozen=True):
    level = logging.WARNING

    def text(self) -> str:
        return (
            f"{self.job} caught the exception that suspends it, and is suspended at its next step: write 'except "
            "Exception', or raise it again"
        )


class ErrorNotKept(JobEvent, frozen=True):
    level = logging.WARNING
    key: str
    type: str

    def text(self) -> str:
        return (
            f"step {self.key} of {self.job} failed with {self.type}, which the handler caught. That exception cannot "
            "be rebuilt from its saved form: a replay raises StepFailed instead. Catch StepFailed, too, or catch the "
            "error inside the step"
        )


class UndoFailed(JobEvent, frozen=True):
    level = logging.ERROR
    key: str
    error: str

    def text(self) -> str:
        return f"step {self.key} of {self.job} could not be undone and stays: {self.error}"


class PolicyUnreadable(JobEvent, frozen=True):
    level = logging.WARNING
    error: str

    def text(self) -> str:
        return f"the policy of {self.job} cannot be read, so its task's is used: {self.error}"


class BackoffFailed(Telemetry, frozen=True):
    level = logging.ERROR
    job_id: str | None
    task: str
    queue: str | None
    attempt: int
    of: str
    """The task, or the step and its task."""
    error: str
    delay: float

    def text(self) -> str:
        return f"the backoff function of {self.of} failed, so the next try is in {self.delay:g} s: {self.error}"
