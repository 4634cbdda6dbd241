"""Run claimed jobs, each in a slot: start them, stop them when asked, and hand their outcomes on.

A slot is free again when its handler has really ended, not when it was asked to.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Callable

from stepwell.durable.job_context import run_of
from stepwell.durable.log_filter import LoggedRun, log_as
from stepwell.execution.executor import outcome_of
from stepwell.execution.step_task import for_run
from stepwell.plugins.run import Run
from stepwell.telemetry.jobs import HandlerAbandoned, JobStarted, JobStopAsked
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Failed, Misfit, Outcome
from stepwell.worker.batches.batch_runs import BatchRuns, RunningBatch
from stepwell.worker.batches.batches import Batches
from stepwell.worker.batches.gathering import Batch
from stepwell.worker.handler_calls import HandlerCalls
from stepwell.worker.live_stack import stack_of
from stepwell.worker.outcomes.outcome_table import EndedRun, unstarted
from stepwell.worker.running_job import RunningJob, StopReason, outcome_of_stop, stands, stopped_outcome
from stepwell.worker.shared_parts import SharedParts
from stepwell.worker.wrapped_run import execute_wrapped


class Runner:
    """The slots of a pool, and the claimed jobs that wait for one. A batch of jobs takes one slot."""

    def __init__(self, shared: SharedParts, slots: int, starts_per_turn: int) -> None:
        app = shared.app
        self._tasks = app.tasks
        self.task_names = list(app.tasks)
        self.slots = slots
        self._outcomes = shared.outcomes
        self._events = shared.events
        self._log_sink = shared.logs.sink
        self._plugins = app.plugins.for_runs()
        self._wraps = self._plugins.wraps_run
        self._processes = shared.processes
        self._calls = HandlerCalls(shared, slots, self._ready_again)
        self._context = contextvars.copy_context()
        self._script_end = shared.script_end
        self._loop = asyncio.get_running_loop()
        self.freed = asyncio.Event()
        """Set whenever there may be room for more jobs: a slot is free, or outcomes were written."""
        shared.outcomes.wakes.append(self.freed)
        self._idle = asyncio.Event()
        self._idle.set()
        self.unstarted: deque[ClaimedJob | Batch] = deque()
        """Jobs and batches that start as soon as there is a slot."""
        runs = BatchRuns(
            shared.outcomes,
            shared.events,
            self._plugins,
            self._calls.in_thread,
            app.max_result_size,
            self._script_end,
            self._batch_ended,
        )
        self._batches = Batches(app.tasks, runs, shared.events, self._batch_due, waits=shared.batches_wait)
        # By id and epoch: a job can come back while its lost or abandoned run still goes on here.
        self.running: dict[tuple[str, int], RunningJob] = {}
        self.ended = 0
        self._starts_per_turn = self._starts_left = starts_per_turn
        self._turn_comes = False

    @property
    def spare(self) -> int:
        """Claimed jobs beyond the slots; if negative, the number of jobs for which there are free slots."""
        if not self._batches.possible:
            return len(self.running) + len(self.unstarted) - self.slots
        free = self.slots - len(self.running) - self._batches.slots
        return self.unstarted_jobs - int(free * self.jobs_per_slot)

    @property
    def jobs_per_slot(self) -> float:
        return self._batches.jobs_per_slot

    @property
    def unstarted_jobs(self) -> int:
        """How many claimed jobs have not started."""
        if not self._batches.possible:
            return len(self.unstarted)
        return sum(1 for waits in list(self.unstarted) if not isinstance(waits, Batch)) + self._batches.unstarted_jobs

    @property
    def running_jobs(self) -> int:
        return len(self.running) + self._batches.running_jobs

    @property
    def busy(self) -> bool:
        return bool(self.running or self.unstarted) or self._batches.busy

    @property
    def jobs(self) -> list[ClaimedJob]:
        running = [run.job for run in list(self.running.values())]
        waiting = [job for job in list(self.unstarted) if not isinstance(job, Batch)]
        return [*running, *self._batches.jobs, *waiting]

    def take(self, jobs: list[ClaimedJob]) -> None:
        """Take claimed jobs and start as many as there are free slots."""
        if jobs:
            self.unstarted.extend(self._batches.take(jobs))
            self._idle.clear()
        self._fill()

    def end_unstarted(self, job: ClaimedJob, outcome: Outcome) -> None:
        """Write the outcome of a claimed job that does not run."""
        self._outcomes.add(unstarted(job, self._tasks[job.task].for_job(job, self._events.emit), outcome))

    def drop_unstarted(
        self, which: Callable[[ClaimedJob], bool] = lambda _: True, *, gathering: bool = True
    ) -> list[ClaimedJob]:
        """Forget claimed jobs that have not started, and return them. Nothing is written of them. Without `gathering`,
        jobs stay that wait for their batch, and not for a slot."""
        jobs = [job for job in self.unstarted if not isinstance(job, Batch) and which(job)]
        jobs += self._batches.drop(which, due_only=not gathering)
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
        if self._batches.stop(job_id, reason) or runs:
            return True
        for job in self.drop_unstarted(lambda job: job.id == job_id):
            task = self._tasks[job.task].for_job(job, self._events.emit)
            self._outcomes.add(unstarted(job, task, outcome_of_stop(reason, task, job.attempt)))
            return True
        return False

    def stop_all(self, reason: StopReason) -> None:
        for run in list(self.running.values()):
            self._stop(run, reason)
            if run.never_started:
                self._leave(run, stopped_outcome(run))
        self._batches.stop_all(reason)

    def abandon_all(self) -> None:
        """Write for every job still running that it was stopped, and no longer wait for its handler."""
        for run in list(self.running.values()):
            self._abandon(run)
        self._batches.abandon_all()

    @property
    def only_threads_run(self) -> bool:
        """Whether each handler that runs is a plain function in a thread, which cannot be made to end."""
        return all(run.kind == "thread" for run in (*self.running.values(), *self._batches.running))

    def sever(self) -> None:
        self._calls.sever()

    async def idle(self) -> None:
        await self._idle.wait()

    def close(self) -> None:
        """Let go of the threads, without waiting for those that still run."""
        self._calls.close()

    def on_loop(self) -> ClaimedJob | None:
        """The job whose coroutine the event loop runs at this moment. For other threads to ask."""
        current = asyncio.current_task(self._loop)
        runs = (run.job for run in list(self.running.values()) if run.handler is current)
        return next(runs, None) or self._batches.on_loop(current)

    def stack(self, job_id: str, loop_thread: int) -> str | None:
        """Where the handler of a job is now, or why that cannot be said; None: the job is not here. For other threads
        to ask: the event loop may be blocked."""
        for run in list(self.running.values()):
            if run.job.id == job_id and run.stop_process is not None:
                return self._processes.where(run.job)
            if run.job.id == job_id:
                return stack_of(run.logged, run.handler, self._loop, loop_thread)
        if (stack := self._batches.stack(job_id, loop_thread)) is not None:
            return stack
        if any(job.id == job_id for job in self.jobs):
            return "it was claimed, and waits in the worker for a free slot"
        return None

    def _fill(self) -> None:
        slots = self.slots - self._batches.slots if self._batches.possible else self.slots
        while self.unstarted and len(self.running) < slots and self._starts_left > 0:
            first = self.unstarted.popleft()
            if isinstance(first, Batch):
                slots -= 1
                self._starts_left -= len(first.jobs)
                self._batches.start(first)
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
        sink = self._log_sink if task.logs else None
        return RunningJob(given, task, self._calls.context_for(given, task), LoggedRun(given, sink))

    async def _run(self, run: RunningJob) -> None:
        run.began = time.perf_counter()
        run.started = True
        log_as(run.logged)
        if self._events.wanted(JobStarted):
            self._events.emit(JobStarted(*run.about, run.waited))
        if run.task.timeout is not None:
            self._start_timer(run)
        try:
            if run.stop_reason is not None:
                outcome = stopped_outcome(run)
            elif self._wraps and (wanting := self._plugins.wanting(run.job)):
                around = Run(run.job, run.ctx, run)
                outcome = await execute_wrapped(self._plugins, wanting, around, self._calls.execute, run)
            else:
                outcome = await self._calls.execute(run)
        except BaseException as error:  # around the handler, not in it
            outcome = outcome_of(error, run.task, run_of(run.ctx).counted_attempt)
        if type(outcome) is Failed and self._script_end.ended(outcome.error, on_loop=run.kind == "async"):
            run.stop_reason = run.stop_reason or "shutdown"
            self._script_end.pass_on(outcome.error)
        if run.stop_reason is not None and not stands(outcome, saw_cancelled=run_of(run.ctx).saw_cancelled):
            outcome = stopped_outcome(run, outcome)
        if type(outcome) is Misfit and run.task.job_store.misfit_grace == 0:
            outcome = outcome.failed
        if run.timer is not None:
            run.timer.cancel()
        self._leave(run, outcome)

    def _leave(self, run: RunningJob, outcome: Outcome) -> None:
        """Free the slot of a run."""
        del self.running[run.job.id, run.job.epoch]
        self.ended += 1
        if not run.abandoned:
            self._end(run, outcome)
        run.logged.end()
        if self.unstarted:
            self._fill()
        elif not self.running:
            self._note_idle()
        self.freed.set()

    def _end(self, run: RunningJob, outcome: Outcome) -> None:
        seconds = time.perf_counter() - run.began if run.started else None
        outcome = run.task.with_step(outcome)
        self._outcomes.add(EndedRun(run.job, run.task, outcome, run.attempt, seconds, run.began))

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
        run.ctx = self._calls.context_for(run.job, run.task)
        self._start_timer(run)
        return True

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
        self._events.emit(HandlerAbandoned(*run.about, run.stop_reason))

    def _runs(self, job_id: str) -> list[RunningJob]:
        return [run for run in self.running.values() if run.job.id == job_id]
