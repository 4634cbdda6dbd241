"""Run batches: call the function once for all jobs of a batch, stop it when asked, and hand each job's outcome on.

A job of a running batch that is cancelled is marked: it ends as cancelled with the batch, whatever its result. Only
when every job was asked to stop is the function asked to.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, cast

from stepwell.durable.log_filter import LoggedBatch, log_as
from stepwell.execution.batch_executor import execute_batch, execute_plain_batch, own_task
from stepwell.execution.executor import outcome_of
from stepwell.jobs.batch_task import BatchTask
from stepwell.jobs.task import Task, TaskKind
from stepwell.plugins.run import Run
from stepwell.plugins.run_plugins import RunPlugins
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.jobs import HandlerAbandoned, JobStarted, JobStopAsked
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Cancelled, Failed, Misfit, Outcome
from stepwell.worker.batches.gathering import Batch
from stepwell.worker.live_stack import stack_of
from stepwell.worker.outcomes.outcome_table import EndedRun
from stepwell.worker.outcomes.writer import OutcomeWriter
from stepwell.worker.running_job import StopReason, outcome_of_stop, stands
from stepwell.worker.script_end import ScriptEnd
from stepwell.worker.waited import waited_until
from stepwell.worker.wrapped_run import execute_batch_wrapped


class InThread(Protocol):
    """Calls a plain function in a thread of the pool."""

    def __call__(self, call: Callable[..., list[Outcome]], /, *args: object) -> Awaitable[list[Outcome]]: ...


class RunningBatch:
    """A batch in a slot. Its jobs are told apart by their index: a job can come back while its lost run goes on."""

    __slots__ = ("abandoned", "began", "handler", "jobs", "logged", "started", "stops", "task", "timeout", "timer")

    def __init__(self, batch: Batch) -> None:
        self.task = cast("BatchTask[Any, Any]", batch.task)
        self.timeout = batch.timeout
        self.jobs = batch.jobs
        self.stops: dict[int, StopReason] = {}
        """Why jobs were asked to stop, by their index."""
        self.handler: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.logged = LoggedBatch(batch.jobs[0])
        self.began = 0.0
        self.started = False
        self.abandoned = False

    @property
    def never_started(self) -> bool:
        """Whether it never will: at the end of a script, asyncio has cancelled it before its first step."""
        return not self.started and self.handler is not None and self.handler.done()

    @property
    def kind(self) -> TaskKind:
        return self.task.kind

    @property
    def waited(self) -> float | None:
        """How long its first job was due before it started, in seconds; None: it is not known."""
        return waited_until(self.began, self.jobs[0], self.task)

    @property
    def stop_reason(self) -> StopReason | None:
        """Why its function is to stop; None: not all of its jobs were asked to."""
        return next(iter(self.stops.values())) if len(self.stops) == len(self.jobs) else None


class BatchRuns:
    """The running batches of a pool. `ended` is called with each batch that has left its slot."""

    def __init__(
        self,
        outcomes: OutcomeWriter,
        events: EventBus,
        plugins: RunPlugins,
        in_thread: InThread,
        max_result_size: int,
        script_end: ScriptEnd,
        ended: Callable[[RunningBatch], None],
    ) -> None:
        self._outcomes = outcomes
        self._events = events
        self._plugins = plugins
        self._in_thread = in_thread
        self._max_result_size = max_result_size
        self._script_end = script_end
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self.running: set[RunningBatch] = set()

    @property
    def jobs(self) -> list[ClaimedJob]:
        return [job for batch in list(self.running) for job in batch.jobs]

    def start(self, batch: Batch) -> None:
        run = RunningBatch(batch)
        self.running.add(run)
        run.handler = self._loop.create_task(self._run(run), context=self._context.copy())

    def stop(self, job_id: str, reason: StopReason) -> bool:
        """Ask one job to stop. False: it is in no running batch."""
        found = [(run, index) for run in list(self.running) for index, job in enumerate(run.jobs) if job.id == job_id]
        for run, index in found:
            self._stop(run, [index], reason)
        return bool(found)

    def stop_all(self, reason: StopReason) -> None:
        for run in list(self.running):
            self._stop(run, range(len(run.jobs)), reason)
            if run.never_started:
                self._leave(run, None)

    def abandon_all(self) -> None:
        """Write for every job still running that it was stopped, and no longer wait for its function."""
        for run in list(self.running):
            self._abandon(run)

    def on_loop(self, current: asyncio.Task[Any] | None) -> ClaimedJob | None:
        """The first job of the batch that this task of the event loop runs."""
        return next((run.jobs[0] for run in list(self.running) if run.handler is current), None)

    def stack(self, job_id: str, loop_thread: int) -> str | None:
        """Where the function is that was called for a job; None: the job is in no running batch."""
        for run in list(self.running):
            if any(job.id == job_id for job in run.jobs):
                shared = f"its call is for {len(run.jobs)} jobs\n" if len(run.jobs) > 1 else ""
                return shared + stack_of(run.logged, run.handler, self._loop, loop_thread)
        return None

    async def _run(self, run: RunningBatch) -> None:
        run.began = time.perf_counter()
        run.started = True
        task, jobs, most = run.task, run.jobs, self._max_result_size
        log_as(run.logged)
        if self._events.wanted(JobStarted):
            for job in jobs:
                self._events.emit(JobStarted(*_about(job), waited_until(run.began, job, task)))
        if run.timeout is not None:
            run.timer = self._loop.call_later(run.timeout, self._stop, run, range(len(jobs)), "timeout")
        outcomes: list[Outcome] | None = None
        try:
            if len(run.stops) < len(jobs):
                if task.kind == "async":
                    call = partial(execute_batch, task, jobs, most)
                else:
                    call = partial(self._in_thread, execute_plain_batch, task, jobs, most)
                if self._plugins.wraps_run:
                    around = Run(jobs[0], None, run, jobs)
                    outcomes = await execute_batch_wrapped(self._plugins, around, call)
                else:
                    outcomes = await call()
        except BaseException as error:  # around the function, not in it
            outcomes = [outcome_of(error, own_task(task, job), job.attempt) for job in jobs]
        for failed in (outcome for outcome in outcomes or () if isinstance(outcome, Failed)):
            # Another of its jobs may have failed by itself, before the call.
            if self._script_end.ended(failed.error, on_loop=run.kind == "async"):
                run.stops = {**dict.fromkeys(range(len(jobs)), "shutdown"), **run.stops}
                self._script_end.pass_on(failed.error)
                break
        if run.timer is not None:
            run.timer.cancel()
        self._leave(run, outcomes)

    def _leave(self, run: RunningBatch, outcomes: list[Outcome] | None) -> None:
        """Free the slot of a batch."""
        self.running.discard(run)
        if not run.abandoned:
            self._end(run, outcomes)
        run.logged.end()
        self._ended(run)

    def _end(self, run: RunningBatch, outcomes: list[Outcome] | None) -> None:
        """Hand on the outcome of each job. None: the function was not called, or has not ended."""
        seconds = time.perf_counter() - run.began
        task, stops, grace = run.task, run.stops, run.task.job_store.misfit_grace
        known: dict[tuple[StopReason, int, int], Outcome] = {}
        ended: list[EndedRun[Outcome]] = []
        for index, job in enumerate(run.jobs):
            own: Task[..., Any] = task if job.policy is None else own_task(task, job)
            outcome = None if outcomes is None else outcomes[index]
            if outcome is None or stops:
                outcome = _stopped(stops.get(index), own, job, outcome, known)
            if grace == 0 and isinstance(outcome, Misfit):
                outcome = outcome.failed
            ended.append(EndedRun(job, own, outcome, job.attempt, seconds, run.began))
        self._outcomes.add_all(ended)

    def _stop(self, run: RunningBatch, indexes: range | list[int], reason: StopReason) -> None:
        asked = [index for index in indexes if index not in run.stops or reason == "lease"]
        if run.abandoned or not asked:
            return
        for index in asked:
            run.stops[index] = reason
            self._events.emit(JobStopAsked(*_about(run.jobs[index]), reason))
        if len(run.stops) < len(run.jobs):
            return
        if run.task.kind == "async" and run.started and run.handler is not None:
            run.handler.cancel()
        if reason in ("timeout", "cancel"):
            if run.timer is not None:
                run.timer.cancel()
            run.timer = self._loop.call_later(run.task.timeout_grace, self._abandon, run)

    def _abandon(self, run: RunningBatch) -> None:
        if run.abandoned or len(run.stops) < len(run.jobs):
            return
        run.abandoned = True
        self._end(run, None)
        for index, job in enumerate(run.jobs):
            self._events.emit(HandlerAbandoned(*_about(job), run.stops[index]))


def _stopped(
    reason: StopReason | None,
    task: Task[..., Any],
    job: ClaimedJob,
    outcome: Outcome | None,
    known: dict[tuple[StopReason, int, int], Outcome],
) -> Outcome:
    """The outcome of a job that was asked to stop. `known` are those that others of its batch have."""
    if reason == "cancel":
        return Cancelled(None)
    if outcome is not None and (reason is None or stands(outcome, saw_cancelled=False)):
        return outcome
    if reason is None:
        return outcome_of_stop(None, task, job.attempt)
    key = (reason, id(task), job.attempt)
    if key not in known:
        known[key] = outcome_of_stop(reason, task, job.attempt, outcome)
    return known[key]


def _about(job: ClaimedJob) -> tuple[str, str, str, int]:
    return job.id, job.task, job.queue, job.attempt
