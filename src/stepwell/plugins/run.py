"""A run that is under way, as plugins see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from stepwell.values.headers import read_headers
from stepwell.values.job import ClaimedJob

StopReason = Literal["timeout", "cancel", "shutdown", "lease"]


class _Running(Protocol):
    @property
    def stop_reason(self) -> StopReason | None: ...
    @property
    def waited(self) -> float | None: ...
    @property
    def kind(self) -> Literal["async", "thread", "process"]: ...


class Run:
    """A run of a job, or of a batch of jobs, from before its handler is called until after it has ended."""

    # What few plugins read is a property: one of these is made for each run.
    __slots__ = ("_running", "ctx", "job", "jobs", "outcome")

    def __init__(self, job: ClaimedJob, ctx: Any, running: _Running, jobs: Sequence[ClaimedJob] = ()) -> None:
        self.job = job
        """The job as it was claimed; of a batch, the first one."""
        self.jobs = jobs or (job,)
        """The jobs of the run: one, or those of a batch."""
        self.ctx = ctx
        """The context that the handler gets if it asks for one; None for a batch."""
        self._running = running
        self.outcome: str | None = None
        """How the handler ended, such as "succeeded", "failed", "snoozed" or "suspended"; of a batch, how its first
        job did. None: it has not ended."""

    @property
    def job_id(self) -> str:
        """The id of the job; of a batch, that of its first job."""
        return self.job.id

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.job.task

    @property
    def queue(self) -> str:
        """The queue that the job was claimed from."""
        return self.job.queue

    @property
    def attempt(self) -> int:
        """As `ctx.attempt`; for a batch, the attempt of its first job."""
        return self.job.attempt if self.ctx is None else self.ctx.attempt

    @property
    def waited(self) -> float | None:
        """How long the job was due before it started, in seconds. None: it is not known, of a job with a fair key that
        was delayed or has run before."""
        return self._running.waited

    @property
    def kind(self) -> Literal["async", "thread", "process"]:
        """Where the handler runs."""
        return self._running.kind

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the run was asked to stop; None: it was not."""
        return self._running.stop_reason

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the job, as a plugin added them when it was enqueued; of a batch, those of its first job."""
        return read_headers(self.job.policy)
