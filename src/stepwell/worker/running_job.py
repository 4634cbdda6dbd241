"""One job in its slot, and why it may be asked to stop."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from stepwell.durable.job_context import JobContext, run_of
from stepwell.durable.log_filter import LoggedRun
from stepwell.jobs.task import Task
from stepwell.values.job import ClaimedJob

Why = Literal["timeout", "cancel", "shutdown", "lease"]


class Run:
    """One job in its slot."""

    __slots__ = (
        "abandoned",
        "began",
        "ctx",
        "finishing",
        "handler",
        "job",
        "logged",
        "started",
        "stopping",
        "task",
        "timer",
        "why",
        "wish",
    )

    def __init__(self, job: ClaimedJob, task: Task[..., Any], ctx: JobContext) -> None:
        self.job = job
        self.logged = LoggedRun(job)
        self.task = task
        self.ctx = ctx
        self.handler: asyncio.Task[None] | None = None
        self.stopping: asyncio.Event | None = None
        """To be set to end the process that it runs in."""
        self.timer: asyncio.TimerHandle | None = None
        self.why: Why | None = None
        # Why it was asked to stop while its transaction was ending. It matters only if the handler would run again.
        self.wish: Why | None = None
        self.started = False
        self.began = 0.0
        self.finishing = False
        self.abandoned = False

    def begin(self, ctx: JobContext) -> None:
        """A step of a chain begins, with a context of its own."""
        if self.why is not None:
            run_of(ctx).ask_to_stop()
        self.ctx = ctx
        self.logged.attempt = ctx.attempt
