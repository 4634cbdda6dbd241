"""Events of durable jobs: their steps, their compensation, and the policies of jobs."""

from __future__ import annotations

import logging

from stepwell.telemetry.bus import JobEvent, counted


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
    line = (
        "{0.job} has {0.steps} steps, and every replay reads them all; the job fails at {0.most}: return "
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
    line = (
        "{0.job} caught the exception that suspends it, and is suspended at its next step: write 'except "
        "Exception', or raise it again"
    )


class ErrorNotKept(JobEvent, frozen=True):
    level = logging.WARNING
    key: str
    type: str
    line = (
        "step {0.key} of {0.job} failed with {0.type}, which the handler caught. That exception cannot "
        "be rebuilt from its saved form: a replay raises StepFailed instead. Catch StepFailed, too, or catch the "
        "error inside the step"
    )


class UndoFailed(JobEvent, frozen=True):
    level = logging.ERROR
    key: str
    error: str
    line = "step {0.key} of {0.job} could not be undone and stays: {0.error}"


class PolicyUnreadable(JobEvent, frozen=True):
    level = logging.WARNING
    error: str
    line = "the policy of {0.job} cannot be read, so the job uses the policy of its task: {0.error}"


class BackoffFailed(JobEvent, frozen=True):
    level = logging.ERROR
    of: str
    """The task, or the step and its task."""
    error: str
    delay: float
    line = "{0.job}: the backoff function of {0.of} failed, so the next try is in {0.delay:g} s: {0.error}"
