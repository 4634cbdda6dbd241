"""Events of durable jobs: their steps, their compensation, and the policies of jobs."""

from __future__ import annotations

import logging

from stepwell.telemetry.bus import Telemetry


class StepSaved(Telemetry, frozen=True):
    level = logging.DEBUG
    job_id: str
    task: str
    queue: str
    attempt: int
    key: str

    def text(self) -> str:
        return f"step {self.key} of job {self.job_id} ({self.task}) is saved"


class BackoffFailed(Telemetry, frozen=True):
    level = logging.ERROR
    task: str
    error: str
    delay: float

    def text(self) -> str:
        return f"the backoff function of {self.task} failed, so the next try is in {self.delay:g} s: {self.error}"


class ManySteps(Telemetry, frozen=True):
    level = logging.WARNING
    job_id: str
    task: str
    steps: int
    most: int

    def text(self) -> str:
        return (
            f"job {self.job_id} ({self.task}) has {self.steps} steps, and every replay reads them all; the job fails "
            f"at {self.most}: return Restart(...) before that"
        )


class StepDrifted(Telemetry, frozen=True):
    level = logging.WARNING
    job_id: str
    task: str
    key: str
    drift: str

    def text(self) -> str:
        then = "the step runs again" if self.drift == "rerun" else "its saved value is used"
        return f"step {self.key} of job {self.job_id} ({self.task}) was saved with other arguments: {then}"


class SuspensionCaught(Telemetry, frozen=True):
    level = logging.WARNING
    job_id: str
    task: str

    def text(self) -> str:
        return (
            f"{self.task} {self.job_id} caught the exception that suspends it, and is suspended at its next step: "
            "write 'except Exception', or raise it again"
        )


class ErrorNotKept(Telemetry, frozen=True):
    level = logging.WARNING
    job_id: str
    task: str
    key: str
    type: str

    def text(self) -> str:
        return (
            f"step {self.key} of job {self.job_id} ({self.task}) failed with {self.type}, which the handler caught. "
            "That exception cannot be rebuilt from its saved form: a replay raises StepFailed instead. Catch "
            "StepFailed, too, or catch the error inside the step"
        )


class UndoFailed(Telemetry, frozen=True):
    level = logging.ERROR
    job_id: str
    task: str
    key: str
    error: str

    def text(self) -> str:
        return f"step {self.key} of job {self.job_id} ({self.task}) could not be undone and stays: {self.error}"


class PolicyUnreadable(Telemetry, frozen=True):
    level = logging.WARNING
    job_id: str
    task: str
    error: str

    def text(self) -> str:
        return f"the policy of job {self.job_id} ({self.task}) cannot be read, so its task's is used: {self.error}"
