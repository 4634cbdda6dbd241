"""How long a job was due before it started."""

from __future__ import annotations

import time
from typing import Any

from stepwell.jobs.task import Task
from stepwell.values.job import ClaimedJob
from stepwell.values.policy import is_delayed


def _due_at(job: ClaimedJob, task: Task[..., Any]) -> float | None:
    """When the job became due, in seconds since 1970, by the database's clock; None: it is not known."""
    if task.rules.fair is None:
        return job.run_at / 1e6
    # The run_at of a job with a fair key is its turn, which is no time of the clock. Its id begins with the time at
    # which it was enqueued, in milliseconds. Unless it was delayed, it was due then, for its first run.
    if job.epoch > 1 or is_delayed(job.policy):
        return None
    return int(job.id[:8] + job.id[9:13], 16) / 1e3


def waited_at(time_of_day: float, job: ClaimedJob, task: Task[..., Any]) -> float | None:
    """How long the job had been due at this time, in seconds since 1970; None: it is not known."""
    due = _due_at(job, task)
    return None if due is None else max(0.0, time_of_day - due)


def waited_until(began: float, job: ClaimedJob, task: Task[..., Any]) -> float | None:
    """The same, for a time of `time.perf_counter`."""
    return waited_at(time.time() - (time.perf_counter() - began), job, task)
