"""Run claimed jobs, each in a slot: start them, stop them when asked, and hand their outcomes on.

A slot is free again when its handler has really ended, not when it was asked to.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from stepwell.app import App
from stepwell.durable.backend import Durability
from stepwell.durable.job_context import JobContext, run_of
from stepwell.durable.log_filter import LoggedRun, log_as
from stepwell.durable.time_limit import TimeLimitExpired
from stepwell.execution.executor import execute, execute_plain, outcome_of
from stepwell.execution.flow_executor import execute_flow
from stepwell.execution.step_task import for_run
from stepwell.jobs.task import Task
from stepwell.postgres.database import Database
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.jobs import HandlerAbandoned, JobStarted, JobStopAsked
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Misfit, Outcome
from stepwell.worker.batches.batch_runs import BatchRuns, RunningBatch
from stepwell.worker.batches.gathering import Batch, Gathering
from stepwell.worker.outcomes.outcome_table import EndedRun, unstarted
from stepwell.worker.outcomes.writer import OutcomeWriter
from stepwell.worker.process import Processes
from stepwell.worker.running_job import RunningJob, StopReason, outcome_of_stop, stands, stopped_outcome
from stepwell.worker.steps.step_store import StepStore
from stepwell.worker.steps.transaction_runs import TransactionRuns
from stepwell.worker.worker_connection import WorkerConnection

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SharedParts:
    """The parts of a worker that its runners share."""

    app: App
    events: EventBus
    outcomes: OutcomeWriter
    steps: StepStore
    processes: Processes
    transactions: Database
    """The connections of handlers with `transaction=True`."""
    connection: WorkerConnection
    """To look up commits that are in doubt."""
    always_replay: bool
    batches_wait: bool
    """Whether batches that are not full wait for more jobs."""


class Runner:
    """The slots of a pool, and the claimed jobs that wait for one. A batch of jobs takes one slot."""

    def __init__(self, shared: SharedParts, slots: int, starts_per_turn: int) -> None:
        app = shared.app
        self._tasks = app.tasks
        self.task_names = list(app.tasks)
        self._durability = {
            name: Durability(shared.steps.backend, task.drift, shared.always_replay, shared.events)
            for name, task in app.tasks.items()
        }
        self.slots = slots
        self._max_result_size = app.max_result_size
        self._outcomes = shared.outcomes
        self._events = shared.events
        self._processes = shared.processes
        self._transactions = TransactionRuns(
            shared.connection,
            shared.transactions,
            app.max_result_size,
            shared.events,
            self._in_thread,
            self._ready_again,
        )
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(max_workers=slots, thread_name_prefix="stepwell-task")
        self.freed = asyncio.Event()
        """Set whenever there may be room for more jobs: a slot is free, or outcomes were written."""
        shared.outcomes.wakes.append(self.freed)
        self._idle = asyncio.Event()
        self._idle.set()
        self.unstarted: deque[ClaimedJob | Batch] = deque()
        """Jobs and batches that start as soon as there is a slot."""
        self._gathering: Gathering | None = None
        self._batch_runs = BatchRuns(
            shared.outcomes, shared.events, self._in_thread, app.max_result_size, self._batch_ended
        )
        if any(task.batch is not None for task in app.tasks.values()):
            self._gathering = Gathering(app.tasks, shared.events, self._batch_due, waits=shared.batches_wait)
        # By id and epoch: a job can come back while its lost or abandoned run still goes on here.
        self.running: dict[tuple[str, int], RunningJob] = {}
        self.ended = 0
        self._starts_per_turn = self._starts_left = starts_per_turn
        self._turn_comes = False

    @property
    def spare(self) -> int:
        """Claimed jobs beyond the slots; if negative, the number of jobs for which there are free slots."""
        if self._gathering is None:
            return len(self.running) + len(self.unstarted) - self.slots
        free = self.slots - len(self.running) - len(self._batch_runs.running)
        return self.unstarted_jobs - int(free * self.jobs_per_slot)

    @property
    def jobs_per_slot(self) -> float:
        return 1.0 if self._gathering is None else self._gathering.jobs_per_slot

    @property
    def unstarted_jobs(self) -> int:
        """How many claimed jobs have not started."""
        if self._gathering is None:
            return len(self.unstarted)
        return sum(1 for waits in self.unstarted if not isinstance(waits, Batch)) + self._gathering.count

    @property
    def running_jobs(self) -> int:
        return len(self.running) + sum(len(run.jobs) for run in self._batch_runs.running)

    @property
    def busy(self) -> bool:
        if self.running or self.unstarted or self._batch_runs.running:
            return True
        return self._gathering is not None and self._gathering.count > 0

    @property
    def jobs(self) -> list[ClaimedJob]:
        jobs = [run.job for run in self.running.values()]
        if self._gathering is not None:
            jobs += [*self._batch_runs.jobs, *self._gathering.jobs]
        return jobs + [job for job in self.unstarted if not isinstance(job, Batch)]

    def take(self, jobs: list[ClaimedJob]) -> None:
        """Take claimed jobs and start as many as there are free slots."""
        if self._gathering is None:
            self.unstarted.extend(jobs)
        elif jobs:
            self._gathering.note_claimed(jobs)
            for job in jobs:
                if self._tasks[job.task].batch is None:
                    self.unstarted.append(job)
                else:
                    self._gathering.add(job)
        if jobs:
            self._idle.clear()
        self._fill()

    def end_unstarted(self, job: ClaimedJob, outcome: Outcome) -> None:
        """Write the outcome of a claimed job that does not run."""
        self._outcomes.add(unstarted(job, self._tasks[job.task].for_job(job), outcome))

    def drop_unstarted(
        self, which: Callable[[ClaimedJob], bool] = lambda _: True, *, gathering: bool = True
    ) -> list[ClaimedJob]:
        """Forget claimed jobs that have not started, and return them. Nothing is written of them. Without `gathering`,
        jobs stay that wait for their batch, and not for a slot."""
        jobs = [job for job in self.unstarted if not isinstance(job, Batch) and which(job)]
        if self._gathering is not None:
            jobs += self._gathering.drop(which, due_only=not gathering)
        if jobs:
            self.unstarted = deque(
                waits for waits in self.unstarted if (waits.jobs if isinstance(waits, Batch) else not which(waits))
            )
        self._note_idle()
        return jobs

    def stop(self, job_id: str, reason: StopReason) -> bool:
        """Ask a job to stop; one that waits for a slot ends at once. False: it is not here."""
        runs = self._runs(job_id)
        for run in runs:
            self._stop(run, reason)
        if self._batch_runs.stop(job_id, reason) or runs:
            return True
        for job in self.drop_unstarted(lambda job: job.id == job_id):
            task = self._tasks[job.task].for_job(job)
            self._outcomes.add(unstarted(job, task, outcome_of_stop(reason, task, job.attempt)))
            return True
        return False

    def stop_all(self, reason: StopReason) -> None:
        for run in list(self.running.values()):
            self._stop(run, reason)
        self._batch_runs.stop_all(reason)

    def abandon_all(self) -> None:
        """Write for every job still running that it was stopped, and no longer wait for its handler."""
        for run in list(self.running.values()):
            self._abandon(run)
        self._batch_runs.abandon_all()

    def sever(self) -> None:
        self._transactions.sever()

    async def idle(self) -> None:
        await self._idle.wait()

    def close(self) -> None:
        """Let go of the threads, without waiting for those that still run."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def on_loop(self) -> ClaimedJob | None:
        """The job whose coroutine the event loop runs at this moment. For other threads to ask."""
        current = asyncio.current_task(self._loop)
        runs = (run.job for run in list(self.running.values()) if run.handler is current)
        return next(runs, None) or self._batch_runs.on_loop(current)

    def _fill(self) -> None:
        slots = self.slots - len(self._batch_runs.running)
        while self.unstarted and len(self.running) < slots and self._starts_left > 0:
            first = self.unstarted.popleft()
            if isinstance(first, Batch):
                assert self._gathering is not None
                slots -= 1
                self._starts_left -= len(first.jobs)
                self._gathering.start(first)
                self._batch_runs.start(first)
                continue
            self._starts_left -= 1
            run = self._new(first)
            self.running[run.job.id, run.job.epoch] = run
            # From the worker's own context, not the last job's: contextvars that a handler sets stay its own.
            run.handler = self._loop.create_task(self._run(run), context=self._context.copy())
        if self._starts_left < self._starts_per_turn and not self._turn_comes:
            self._turn_comes = True
            self._loop.call_soon(self._new_turn)

    def _batch_due(self, batch: Batch) -> None:
        self.unstarted.append(batch)
        self._fill()

    def _batch_ended(self, batch: RunningBatch) -> None:
        self.ended += len(batch.jobs)
        self._fill()
        self._note_idle()
        self.freed.set()

    def _note_idle(self) -> None:
        if not self.busy:
            self._idle.set()

    def _new_turn(self) -> None:
        self._turn_comes = False
        self._starts_left = self._starts_per_turn
        self._fill()

    def _new(self, job: ClaimedJob) -> RunningJob:
        task, given = for_run(self._tasks[job.task].for_job(job, self._events.emit), job)
        return RunningJob(given, task, self._new_context(given, task), LoggedRun(given), given.attempt)

    def _new_context(self, job: ClaimedJob, task: Task[..., Any]) -> JobContext:
        return task.context_for(job, self._report, self._durability[job.task])

    async def _run(self, run: RunningJob) -> None:
        run.began = time.perf_counter()
        run.started = True
        log_as(run.logged)
        if self._events.wanted(JobStarted):
            run.attempt = run.ctx.attempt
            self._events.emit(JobStarted(*run.about))
        self._start_timer(run)
        try:
            outcome = await self._execute(run) if run.stop_reason is None else stopped_outcome(run)
        except BaseException as error:  # around the handler, not in it
            outcome = outcome_of(error, run.task, run_of(run.ctx).counted_attempt)
        if run.stop_reason is not None and not stands(run, outcome):
            outcome = stopped_outcome(run, outcome)
        if isinstance(outcome, Misfit) and run.task.job_store.misfit_grace == 0:
            outcome = outcome.failed
        if run.timer is not None:
            run.timer.cancel()
        del self.running[run.job.id, run.job.epoch]
        self.ended += 1
        if not run.abandoned:
            self._end(run, outcome)
        run.logged.end()
        self._fill()
        self._note_idle()
        self.freed.set()

    def _end(self, run: RunningJob, outcome: Outcome) -> None:
        seconds = time.perf_counter() - run.began if run.started else None
        outcome = run.task.with_failed_step(outcome)
        self._outcomes.add(EndedRun(run.job, run.task, outcome, run.attempt, seconds))

    def _start_timer(self, run: RunningJob) -> None:
        if run.timer is not None:
            run.timer.cancel()
        # In a chain or machine the timeout is for each step: its executor minds it. The process pool minds its own.
        if run.task.timeout is not None and run.task.kind != "process" and run.task.flow is None:
            run.timer = self._loop.call_later(run.task.timeout, self._stop, run, "timeout")

    def _ready_again(self, run: RunningJob) -> bool:
        """Ready a run whose transaction was rolled back for one more try: no attempt is used, and the timeout starts
        anew. False: it was asked to stop, and must not run again."""
        run.finishing = False
        if run.late_stop is not None and (run.stop_reason is None or run.late_stop == "lease"):
            run.stop_reason = run.late_stop
            self._events.emit(JobStopAsked(*run.about, run.stop_reason))
        if run.stop_reason is not None:
            return False
        run.ctx = self._new_context(run.job, run.task)
        self._start_timer(run)
        return True

    def _execute(self, run: RunningJob) -> Awaitable[Outcome]:
        # Not a coroutine itself: the event loop would pass through one more each time that a step was saved.
        job, task, ctx, most = run.job, run.task, run.ctx, self._max_result_size
        if task.transaction:
            return self._transactions.execute(run)
        if task.flow is not None:
            return execute_flow(task, job, self._report, self._durability[job.task], most, run.begin)
        if task.kind == "async":
            return execute(task, job.args, ctx, most)
        if task.kind == "thread":
            return self._in_thread(execute_plain, task, job.args, ctx, most)
        return self._in_process(run)

    async def _in_process(self, run: RunningJob) -> Outcome:
        run.stop_process = asyncio.Event()
        try:
            return await self._processes.run(run.job, run.task, self._max_result_size, run.stop_process)
        except TimeLimitExpired as error:
            run.stop_reason = run.stop_reason or "timeout"
            return outcome_of(error, run.task, run.job.attempt)

    async def _in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        # A thread of the pool keeps its context; each job gets one of its own, which is its run's.
        work = partial(contextvars.copy_context().run, call, *args, **kwargs)
        return await self._loop.run_in_executor(self._threads, work)

    def _stop(self, run: RunningJob, reason: StopReason) -> None:
        if run.finishing and reason != "timeout" and (run.late_stop is None or reason == "lease"):
            run.late_stop = reason  # a handler that has ended has kept its timeout, however long the commit takes
        if run.finishing or run.abandoned or (run.stop_reason is not None and reason != "lease"):
            return
        run.stop_reason = reason
        self._events.emit(JobStopAsked(*run.about, reason))
        run_of(run.ctx).ask_to_stop()
        if run.task.kind == "async" and run.started and run.handler is not None:
            run.handler.cancel()
        if run.stop_process is not None:
            run.stop_process.set()
        if reason in ("timeout", "cancel"):
            if run.timer is not None:
                run.timer.cancel()
            run.timer = self._loop.call_later(run.task.timeout_grace, self._abandon, run)

    def _abandon(self, run: RunningJob) -> None:
        # A process is not abandoned: it is killed, and its slot is free when it is dead.
        if run.finishing or run.abandoned or run.stop_reason is None or run.stop_process is not None:
            return
        run.abandoned = True
        if run_of(run.ctx).took_steps:
            run_of(run.ctx).journal.close()
        self._end(run, stopped_outcome(run))
        self._events.emit(HandlerAbandoned(*run.about))

    def _report(self, job: ClaimedJob, text: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: an abandoned thread still reports
            self._loop.call_soon_threadsafe(self._outcomes.report, job, text)

    def _runs(self, job_id: str) -> list[RunningJob]:
        return [run for run in self.running.values() if run.job.id == job_id]
