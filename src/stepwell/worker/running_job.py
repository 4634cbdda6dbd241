"""A job in a slot, and the reasons for which it may be asked to stop."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from stepwell.durable.job_context import JobContext
from stepwell.durable.log_filter import LoggedRun
from stepwell.jobs.task import Task
from stepwell.values.job import ClaimedJob

StopReason = Literal["timeout", "cancel", "shutdown", "lease"]


class RunningJob:
    """A job in a slot. Only its runner, on the event loop, changes it."""

    __slots__ = (
        "abandoned",
        "attempt",
        "began",
        "ctx",
        "finishing",
        "handler",
        "job",
        "late_stop",
        "logged",
        "started",
        "stop_process",
        "stop_reason",
        "task",
        "timer",
    )

    def __init__(self, job: ClaimedJob, task: Task[..., Any], ctx: JobContext) -> None:
        self.job = job
        self.logged = LoggedRun(job)
        self.task = task
        self.ctx = ctx
        self.attempt = job.attempt
        """The attempt that its events name."""
        self.handler: asyncio.Task[None] | None = None
        self.stop_process: asyncio.Event | None = None
        """Set to end the process that the job runs in; None: it runs in this one."""
        self.timer: asyncio.TimerHandle | None = None
        self.stop_reason: StopReason | None = None
        self.late_stop: StopReason | None = None
        """Why it was asked to stop while its transaction was ending. It counts only if the handler runs again."""
        self.started = False
        self.began = 0.0
        self.finishing = False
        """The handler has ended, and can no longer be stopped."""
        self.abandoned = False
        """Its outcome is written, though its handler still runs."""

    def begin(self, ctx: JobContext) -> None:
        """A step of a chain begins, with a context of its own."""
        if self.stop_reason is not None:
            ctx.ask_to_stop()
        self.ctx = ctx
        self.logged.attempt = ctx.attempt

    @property
    def about(self) -> tuple[str, str, str, int]:
        """The first fields of each event about the job."""
        return self.job.id, self.job.task, self.job.queue, self.attempt
