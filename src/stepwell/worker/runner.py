"""Run claimed jobs, each in a slot: start them, stop them when asked, and hand on how they ended.

A slot is free again when its handler has really ended, not when it was asked to.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from stepwell.durable.backend import Durability
from stepwell.durable.backoff import pause_after
from stepwell.durable.job_context import JobContext, run_of
from stepwell.durable.log_filter import log_as
from stepwell.durable.time_limit import TimeLimitExpired
from stepwell.execution.executor import execute, execute_plain, outcome_of
from stepwell.execution.flow_executor import execute_flow
from stepwell.execution.step_task import for_run
from stepwell.jobs.task import Task
from stepwell.postgres.database import Database
from stepwell.telemetry.events import Events, HandlerAbandoned, JobStarted, JobStopAsked, JobSucceeded, JobSuspended
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import (
    Advanced,
    Cancelled,
    Failed,
    HandedBack,
    Misfit,
    Outcome,
    Restarted,
    Settled,
    Succeeded,
    Suspended,
    Undone,
)
from stepwell.worker.outcomes.writer import Outcomes
from stepwell.worker.process import Processes
from stepwell.worker.running_job import Run, Why
from stepwell.worker.steps.step_store import StepStore
from stepwell.worker.steps.transaction_runs import TransactionRuns

P = ParamSpec("P")
T = TypeVar("T")


class Runner:
    """The slots of a pool, and the claimed jobs that wait for one."""

    def __init__(
        self,
        database: Database,
        transactions: Database,
        steps: StepStore,
        tasks: Mapping[str, Task[..., Any]],
        concurrency: int,
        starts_per_turn: int,
        processes: Processes,
        max_result_size: int,
        outcomes: Outcomes,
        events: Events,
        freed: Callable[[], None],
        *,
        always_replay: bool,
    ) -> None:
        self._database = database
        self._tasks = tasks
        self._durability = {
            name: Durability(steps.backend, task.drift, always_replay, events) for name, task in tasks.items()
        }
        self.concurrency = concurrency
        self._max_result_size = max_result_size
        self._outcomes = outcomes
        self._context = contextvars.copy_context()
        self._transactions = TransactionRuns(
            database, transactions, max_result_size, events, self._in_thread, self._again
        )
        self._events = events
        self._freed = freed
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(max_workers=concurrency, thread_name_prefix="stepwell-task")
        self._processes = processes
        self._idle = asyncio.Event()
        self._idle.set()
        self.waiting: deque[ClaimedJob] = deque()
        # By id and epoch: a job can come back while its lost or abandoned run still goes on here.
        self.running: dict[tuple[str, int], Run] = {}
        self.ended = 0
        self._starts_per_turn = self._starts_left = starts_per_turn
        self._turn_comes = False

    @property
    def spare(self) -> int:
        """Claimed jobs beyond those that run or are about to; if negative, so many slots are free."""
        return len(self.running) + len(self.waiting) - self.concurrency

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits here."""
        return bool(self.running or self.waiting)

    @property
    def jobs(self) -> list[ClaimedJob]:
        """The claimed jobs that run or wait here."""
        return [*(run.job for run in self.running.values()), *self.waiting]

    def take(self, jobs: list[ClaimedJob]) -> None:
        """Take claimed jobs and start as many as there are free slots."""
        self.waiting.extend(jobs)
        if jobs:
            self._idle.clear()
        self._fill()

    def give_back(self, which: Callable[[ClaimedJob], bool] = lambda _: True) -> list[ClaimedJob]:
        """Those of the claimed jobs that have not started; they are no longer this runner's."""
        jobs = [job for job in self.waiting if which(job)]
        self.waiting = deque(job for job in self.waiting if not which(job)) if jobs else self.waiting
        self._note_idle()
        return jobs

    def stop(self, job_id: str, why: Why) -> bool:
        """Ask a job to stop; one that waits for a slot ends at once. False: it is not here."""
        runs = self._runs(job_id)
        for run in runs:
            self._stop(run, why)
        if runs:
            return True
        for job in self.waiting:
            if job.id == job_id:
                self.waiting.remove(job)
                self._note_idle()
                unstarted = self._new(job)
                unstarted.why = why
                self._outcomes.add(job, unstarted.task, self._stopped(unstarted))
                return True
        return False

    def process_said(self, job_id: str, text: str) -> None:
        """A process says how far a job has come, if that runs here."""
        for run in self._runs(job_id):
            self._outcomes.report(run.job, text)

    def stop_all(self, why: Why) -> None:
        """Ask every running job to stop."""
        for run in list(self.running.values()):
            self._stop(run, why)

    def abandon_all(self) -> None:
        """Write for every job still running that it was stopped, and no longer wait for its handler."""
        for run in list(self.running.values()):
            self._abandon(run)

    def sever(self) -> None:
        """Look on new connections how commits in doubt went: these give no answer."""
        self._transactions.sever()

    async def idle(self) -> None:
        """Wait until no handler runs, and none is about to."""
        await self._idle.wait()

    def close(self) -> None:
        """Let go of the threads. Those that still run are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def on_loop(self) -> Run | None:
        """The job whose coroutine the event loop is running at this moment. For other threads to ask."""
        current = asyncio.current_task(self._loop)
        return next((run for run in list(self.running.values()) if run.handler is current), None)

    def _fill(self) -> None:
        while self.waiting and len(self.running) < self.concurrency and self._starts_left:
            self._starts_left -= 1
            run = self._new(self.waiting.popleft())
            self.running[run.job.id, run.job.epoch] = run
            # From the worker's own context, not the last job's: what a handler sets in contextvars stays its own.
            run.handler = self._loop.create_task(self._run(run), context=self._context.copy())
        if self._starts_left < self._starts_per_turn and not self._turn_comes:
            self._turn_comes = True
            self._loop.call_soon(self._new_turn)

    def _note_idle(self) -> None:
        if not self.running and not self.waiting:
            self._idle.set()

    def _new_turn(self) -> None:
        self._turn_comes = False
        self._starts_left = self._starts_per_turn
        self._fill()

    def _new(self, job: ClaimedJob) -> Run:
        task, given = for_run(self._tasks[job.task].for_job(job, self._events.emit), job)
        return Run(given, task, self._new_context(given, task))

    def _new_context(self, job: ClaimedJob, task: Task[..., Any]) -> JobContext:
        return task.context_for(job, self._said, self._durability[job.task])

    async def _run(self, run: Run) -> None:
        began = run.began = time.perf_counter()
        run.started = True
        log_as(run.logged)
        if self._events.wanted(JobStarted):
            self._events.emit(JobStarted(run.job.id, run.job.task, run.ctx.attempt))
        self._time(run)
        try:
            outcome = await self._execute(run) if run.why is None else self._stopped(run)
        except BaseException as error:  # around the handler, not in it
            outcome = outcome_of(error, run.task, run_of(run.ctx).counted_attempt)
        if run.why is not None and not self._done_nonetheless(run, outcome):
            outcome = self._stopped(run, outcome)
        if isinstance(outcome, Misfit) and run.task.job_store.misfit_grace == 0:
            outcome = outcome.failed
        outcome = run.task.with_failed_step(outcome)
        if run.timer is not None:
            run.timer.cancel()
        del self.running[run.job.id, run.job.epoch]
        self.ended += 1
        if not run.abandoned:
            passed = time.perf_counter() - began
            self._outcomes.add(run.job, run.task, outcome, passed)
            if self._events.wanted(JobSucceeded) and _succeeded(outcome):
                self._events.emit(JobSucceeded(run.job.id, run.job.task, passed))
            elif isinstance(outcome, Suspended) and self._events.wanted(JobSuspended):
                self._events.emit(JobSuspended(run.job.id, run.job.task))
        run.logged.end()
        self._fill()
        self._note_idle()
        self._freed()

    def _time(self, run: Run) -> None:
        if run.timer is not None:
            run.timer.cancel()
        # Of a chain or machine it is for each step, and its executor's.
        if run.task.timeout is not None and run.task.kind != "process" and run.task.flow is None:
            run.timer = self._loop.call_later(run.task.timeout, self._stop, run, "timeout")

    def _again(self, run: Run) -> bool:
        """Ready a run whose transaction was rolled back for one more try, as if it had not run: no attempt is used, and
        the timeout starts anew. False: it was asked to stop, and is not to run again."""
        run.finishing = False
        if run.wish is not None and (run.why is None or run.wish == "lease"):
            run.why = run.wish
            self._events.emit(JobStopAsked(run.job.id, run.job.task, run.why))
        if run.why is not None:
            return False
        run.ctx = self._new_context(run.job, run.task)
        self._time(run)
        return True

    def _done_nonetheless(self, run: Run, outcome: Outcome) -> bool:
        """Whether a run that was asked to stop had done its work by then.

        One that looked, saw that it was asked, and returned has most likely stopped half-way: that is no success.
        """
        if isinstance(outcome, Succeeded):
            return not run_of(run.ctx).saw_cancelled
        return isinstance(outcome, Settled | Suspended | Advanced | Restarted | Undone)

    async def _execute(self, run: Run) -> Outcome:
        job, task, ctx, most = run.job, run.task, run.ctx, self._max_result_size
        if task.transaction:
            return await self._transactions.execute(run)
        if task.flow is not None:
            outcome = await execute_flow(task, job, self._said, self._durability[job.task], most, run.begin)
            run.finishing = True
            return outcome
        if task.kind == "async":
            outcome = await execute(task, job.args, ctx, most)
            run.finishing = True
            return outcome
        if task.kind == "thread":
            return await self._in_thread(execute_plain, task, job.args, ctx, most)
        run.stopping = asyncio.Event()
        try:
            return await self._processes.run(job, task, most, run.stopping)
        except TimeoutError as error:  # the pool's: it measures from when the function began
            run.why = run.why or "timeout"
            return outcome_of(error, task, job.attempt)

    async def _in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        # A thread of the pool keeps its context; each job gets one of its own, which is its run's.
        work = partial(contextvars.copy_context().run, call, *args, **kwargs)
        return await self._loop.run_in_executor(self._threads, work)

    def _stop(self, run: Run, why: Why) -> None:
        if run.finishing and why != "timeout" and (run.wish is None or why == "lease"):
            run.wish = why  # a handler that has ended has kept its timeout, however long the commit takes
        if run.finishing or run.abandoned or (run.why is not None and why != "lease"):
            return
        run.why = why
        self._events.emit(JobStopAsked(run.job.id, run.job.task, why))
        run_of(run.ctx).ask_to_stop()
        if run.task.kind == "async" and run.started and run.handler is not None:
            run.handler.cancel()
        if run.stopping is not None:
            run.stopping.set()
        if why in ("timeout", "cancel"):
            if run.timer is not None:
                run.timer.cancel()
            run.timer = self._loop.call_later(run.task.timeout_grace, self._abandon, run)

    def _abandon(self, run: Run) -> None:
        # A process is not abandoned: it is killed, and its slot is free when it is dead.
        if run.finishing or run.abandoned or run.why is None or run.stopping is not None:
            return
        run.abandoned = True
        if run_of(run.ctx).took_steps:
            run_of(run.ctx).journal.close()
        outcome = run.task.with_failed_step(self._stopped(run))
        self._outcomes.add(run.job, run.task, outcome, time.perf_counter() - run.began if run.started else None)
        self._events.emit(HandlerAbandoned(run.job.id, run.job.task))

    def _stopped(self, run: Run, outcome: Outcome | None = None) -> Outcome:
        """What becomes of a job that was asked to stop."""
        match run.why:
            case "timeout":
                error = TimeLimitExpired("it", run.task.timeout or 0)
                trace = None
                if isinstance(outcome, Failed):
                    # It shows where the handler stood.
                    trace = outcome.traceback
                    error.__traceback__ = outcome.error.__traceback__ if outcome.error else None
                attempt = run_of(run.ctx).counted_attempt
                delay = pause_after(error, run.task.retry, attempt, run.task.name)
                return Failed("timeout", "TimeoutError", str(error), trace, delay, attempt=attempt, error=error)
            case "cancel":
                return Cancelled(None)
            case "shutdown":
                return HandedBack()
            case "lease" | None:
                return Settled(committed=False)

    def _said(self, job: ClaimedJob, text: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: an abandoned thread is still talking
            self._loop.call_soon_threadsafe(self._outcomes.report, job, text)

    def _runs(self, job_id: str) -> list[Run]:
        return [run for run in self.running.values() if run.job.id == job_id]


def _succeeded(outcome: Outcome) -> bool:
    if isinstance(outcome, Settled):
        return outcome.committed and not outcome.moved_on
    return isinstance(outcome, Succeeded)
