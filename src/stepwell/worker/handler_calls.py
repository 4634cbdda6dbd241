"""Call the handlers of jobs: on the event loop, in a thread, in a process, or within a transaction."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from stepwell.durable.backend import Durability
from stepwell.durable.job_context import JobContext
from stepwell.durable.run_threads import call_noted
from stepwell.durable.time_limit import TimeLimitExpired
from stepwell.execution.executor import execute, execute_plain, outcome_of
from stepwell.execution.flow_executor import execute_flow
from stepwell.jobs.retired_task import outcome_of_retired
from stepwell.jobs.task import Task
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Outcome
from stepwell.worker.daemon_threads import DaemonThreads
from stepwell.worker.running_job import RunningJob
from stepwell.worker.shared_parts import SharedParts
from stepwell.worker.steps.transaction_runs import TransactionRuns

P = ParamSpec("P")
T = TypeVar("T")


class HandlerCalls:
    """Calls the handlers of one pool, with a thread for each of its `slots`. `again` prepares a run whose transaction
    was rolled back for another try, and returns False if the run was asked to stop."""

    def __init__(self, shared: SharedParts, slots: int, again: Callable[[RunningJob], bool]) -> None:
        self._durability = {
            name: Durability(shared.steps.backend, task.drift, shared.always_replay, shared.events)
            for name, task in shared.app.tasks.items()
        }
        self._max_result_size = shared.app.max_result_size
        self._outcomes = shared.outcomes
        self._processes = shared.processes
        self._loop = asyncio.get_running_loop()
        self._threads = DaemonThreads(slots, "stepwell-task")
        self._transactions = TransactionRuns(
            shared.connection, shared.transactions, self._max_result_size, shared.events, self.in_thread, again
        )

    def sever(self) -> None:
        """Settle commits in doubt over new connections: the present ones give no answer."""
        self._transactions.sever()

    def close(self) -> None:
        """Let go of the threads, without waiting for those that still run."""
        self._threads.close()

    def context_for(self, job: ClaimedJob, task: Task[..., Any]) -> JobContext:
        return task.context_for(job, self._report, self._durability[job.task])

    def execute(self, run: RunningJob) -> Awaitable[Outcome]:
        # Not a coroutine itself: the event loop would pass through one more each time that a step was saved.
        job, task, ctx, most = run.job, run.task, run.ctx, self._max_result_size
        if task.retired:
            return outcome_of_retired(task, job)
        if task.transaction:
            return self._transactions.execute(run)
        if task.flow is not None:
            return execute_flow(task, job, self._report, self._durability[job.task], most, run.begin)
        if task.kind == "async":
            return execute(task, job.args, ctx, most)
        if task.kind == "thread":
            return self.in_thread(execute_plain, task, job.args, ctx, most)
        return self._in_process(run)

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a plain function in a thread of the pool, with the context of the run that calls it."""
        work = partial(contextvars.copy_context().run, call_noted, call, *args, **kwargs)
        return await self._loop.run_in_executor(self._threads, work)

    async def _in_process(self, run: RunningJob) -> Outcome:
        run.stop_process = asyncio.Event()
        try:
            return await self._processes.run(run.job, run.task, self._max_result_size, run.stop_process)
        except TimeLimitExpired as error:
            run.stop_reason = run.stop_reason or "timeout"
            return outcome_of(error, run.task, run.job.attempt)

    def _report(self, job: ClaimedJob, text: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: an abandoned thread still reports
            self._loop.call_soon_threadsafe(self._outcomes.report, job, text)
