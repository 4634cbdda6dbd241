"""The batches of one runner: those that gather, those that wait for a slot, and those that run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

from stepwell.jobs.task import Task
from stepwell.telemetry.bus import EventBus
from stepwell.values.job import ClaimedJob
from stepwell.worker.batches.batch_runs import BatchRuns, RunningBatch
from stepwell.worker.batches.gathering import Batch, Gathering
from stepwell.worker.running_job import StopReason


class Batches:
    """Takes the claimed jobs of tasks with `batch=`. `due` is called with each batch that may start."""

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        runs: BatchRuns,
        events: EventBus,
        due: Callable[[Batch], None],
        *,
        waits: bool,
    ) -> None:
        self._tasks = tasks
        self._runs = runs
        self._gathering = Gathering(tasks, events, due, waits=waits)
        self.possible = any(task.batch is not None for task in tasks.values())
        """Whether any task has batches. If none has, taking jobs costs nothing more."""

    @property
    def slots(self) -> int:
        """How many slots the running batches take."""
        return len(self._runs.running)

    @property
    def jobs_per_slot(self) -> float:
        """How many of the jobs that are being claimed take one slot: 1 if none is for a batch."""
        return self._gathering.jobs_per_slot

    @property
    def unstarted_jobs(self) -> int:
        return self._gathering.count

    @property
    def running_jobs(self) -> int:
        return sum(len(run.jobs) for run in list(self._runs.running))  # any thread may ask

    @property
    def running(self) -> Collection[RunningBatch]:
        return self._runs.running

    @property
    def busy(self) -> bool:
        return bool(self._runs.running) or self._gathering.count > 0

    @property
    def jobs(self) -> list[ClaimedJob]:
        return [*self._runs.jobs, *self._gathering.jobs]

    def take(self, jobs: list[ClaimedJob]) -> list[ClaimedJob]:
        """Take the jobs that share a call, and return the others."""
        if not self.possible:
            return jobs
        self._gathering.note_claimed(jobs)
        others: list[ClaimedJob] = []
        for job in jobs:
            if self._tasks[job.task].batch is None:
                others.append(job)
            else:
                self._gathering.add(job)
        return others

    def start(self, batch: Batch) -> None:
        """Run a batch: it has a slot."""
        self._gathering.start(batch)
        self._runs.start(batch)

    def drop(self, which: Callable[[ClaimedJob], bool], *, due_only: bool) -> list[ClaimedJob]:
        """Forget jobs that have not started, and return them. With `due_only`, those of batches that still gather stay.
        A batch may be empty after this: it must not start."""
        return self._gathering.drop(which, due_only=due_only)

    def stop(self, job_id: str, reason: StopReason) -> bool:
        """Ask one job to stop. False: it is in no running batch."""
        return self._runs.stop(job_id, reason)

    def stop_all(self, reason: StopReason) -> None:
        self._runs.stop_all(reason)

    def abandon_all(self) -> None:
        """Write for every job still running that it was stopped, and no longer wait for its function."""
        self._runs.abandon_all()

    def on_loop(self, current: asyncio.Task[Any] | None) -> ClaimedJob | None:
        """The first job of the batch that this task of the event loop runs."""
        return self._runs.on_loop(current)

    def stack(self, job_id: str, loop_thread: int) -> str | None:
        """Where the function is that was called for a job; None: the job is in no running batch."""
        return self._runs.stack(job_id, loop_thread)
