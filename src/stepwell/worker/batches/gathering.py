"""Gather claimed jobs into batches.

Jobs share a batch if they have the same task, queue and timeout, and wait under the same limits and rates: one that
takes long must not hold the permits of others. Batches are not gathered by policy: each job keeps its own retries.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from stepwell.jobs.task import Task
from stepwell.telemetry.bus import EventBus
from stepwell.values.job import ClaimedJob

# How much the jobs of earlier claims count in `jobs_per_slot`, with each claim.
_MEMORY = 0.8


class Batch:
    """Claimed jobs that will share a call. `due`: it is full or its time is up, and it waits for a slot."""

    __slots__ = ("due", "jobs", "key", "task", "timeout", "timer")

    def __init__(self, key: Hashable, task: Task[..., Any], timeout: float | None) -> None:
        self.key = key
        self.task = task
        """Without the policy of any job."""
        self.timeout = timeout
        """The timeout that all its jobs have, by the task or by their policies."""
        self.jobs: list[ClaimedJob] = []
        self.due = False
        self.timer: asyncio.TimerHandle | None = None


class Gathering:
    """The batches that have not started. `due` is called with each batch that may start. One that is not full goes on
    gathering until it does."""

    def __init__(
        self, tasks: Mapping[str, Task[..., Any]], events: EventBus, due: Callable[[Batch], None], *, waits: bool
    ) -> None:
        self._tasks = tasks
        self._events = events
        self._due = due
        self._waits = waits
        self._loop = asyncio.get_running_loop()
        self._open: dict[Hashable, Batch] = {}
        self._all: dict[Batch, None] = {}
        self._by_limit = {name for name, task in tasks.items() if task.batch is not None and _has_keys(task)}
        self.count = 0
        """How many jobs have not started."""
        self._claimed = self._slots = 0.0

    @property
    def jobs(self) -> list[ClaimedJob]:
        return [job for batch in self._all for job in batch.jobs]

    @property
    def jobs_per_slot(self) -> float:
        """How many of the jobs that are being claimed take one slot: 1 if none is for a batch."""
        return self._claimed / self._slots if self._slots else 1.0

    def note_claimed(self, jobs: list[ClaimedJob]) -> None:
        tasks = self._tasks
        self._claimed = self._claimed * _MEMORY + len(jobs)
        counts = Counter([job.task for job in jobs])
        self._slots = self._slots * _MEMORY + sum(count / (tasks[name].batch or 1) for name, count in counts.items())

    def add(self, job: ClaimedJob) -> None:
        task = self._tasks[job.task]
        timeout = task.timeout if job.policy is None else task.for_job(job, self._events.emit).timeout
        key = (job.task, job.queue, timeout, self._limits(task, job) if job.task in self._by_limit else None)
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = Batch(key, task, timeout)
            self._all[batch] = None
            wait = task.batch_wait if self._waits else 0.0
            # At once is not now: the other jobs of the same claim come in this turn of the loop.
            batch.timer = self._loop.call_later(wait, self._time_is_up, batch)
        batch.jobs.append(job)
        self.count += 1
        if len(batch.jobs) == task.batch:
            del self._open[key]
            self._make_due(batch)

    def start(self, batch: Batch) -> None:
        """Take a batch out: it has a slot."""
        if self._open.get(batch.key) is batch:
            del self._open[batch.key]
        del self._all[batch]
        self.count -= len(batch.jobs)

    def drop(self, which: Callable[[ClaimedJob], bool], *, due_only: bool) -> list[ClaimedJob]:
        """Forget jobs, and return them. With `due_only`, those of batches that still gather stay. A batch may be empty
        after this: it must not start."""
        dropped: list[ClaimedJob] = []
        for batch in list(self._all):
            if due_only and not batch.due:
                continue
            gone = [job for job in batch.jobs if which(job)]
            if gone:
                dropped += gone
                batch.jobs = [job for job in batch.jobs if not which(job)]
                self.count -= len(gone)
            if not batch.jobs:
                self.start(batch)
                if batch.timer is not None:
                    batch.timer.cancel()
        return dropped

    def _time_is_up(self, batch: Batch) -> None:
        self._make_due(batch)

    def _make_due(self, batch: Batch) -> None:
        if batch.timer is not None:
            batch.timer.cancel()
            batch.timer = None
        if not batch.due:
            batch.due = True
            self._due(batch)

    def _limits(self, task: Task[..., Any], job: ClaimedJob) -> Hashable:
        try:
            admission = task.rules.of(task.codec.named_args(job.args), job.queue)
        except Exception:
            # The job fails without a call. Whatever is wrong with its args, it must not end the worker.
            return None
        return admission.limits, admission.rates


def _has_keys(task: Task[..., Any]) -> bool:
    """Whether jobs of this task can be under different limits."""
    return any(rule.key is not None and "{" in rule.key for rule in (*task.rules.limits, *task.rules.rates))
