"""Run transactional handlers to their end: settle commits in doubt, run a handler again whose transaction conflicted
with another one, and report the session whose lock keeps a job from ending.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import psycopg

from stepwell.durable.effects import finish
from stepwell.execution.executor import outcome_of
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.telemetry.bus import EventBus
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import NothingToWrite, Outcome
from stepwell.worker import locks
from stepwell.worker.running_job import RunningJob
from stepwell.worker.steps.transaction import InDoubt, RolledBack, execute_in_transaction
from stepwell.worker.worker_connection import DedicatedConnection, WorkerConnection

# Before each further run of a handler whose transaction conflicted with another one.
_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5)
_LOCK_PATIENCE = 1.0


_Ended: TypeAlias = Outcome | RolledBack | InDoubt


class TransactionRuns:
    """Handlers use `transactions`, lookups use `connection`. `in_thread` runs a plain function. `again` prepares a run
    for another try, and returns False if the run was asked to stop."""

    def __init__(
        self,
        connection: WorkerConnection,
        transactions: Database,
        max_result_size: int,
        events: EventBus,
        in_thread: Callable[[Callable[[], _Ended]], Awaitable[_Ended]],
        again: Callable[[RunningJob], bool],
    ) -> None:
        self._connection = connection
        self._transactions = transactions
        self._max_result_size = max_result_size
        self._events = events
        self._in_thread = in_thread
        self._again = again
        self._loop = asyncio.get_running_loop()
        self._settling: set[DedicatedConnection] = set()
        self._reports: set[asyncio.Task[None]] = set()

    def sever(self) -> None:
        """Settle commits in doubt over new connections: the present ones give no answer."""
        for connection in self._settling:
            connection.sever()

    async def execute(self, run: RunningJob) -> Outcome:
        """Run a handler until its transaction is committed or rolled back permanently."""
        for pause in _PAUSES:
            outcome = await self._try(run)
            if not isinstance(outcome, RolledBack):
                return outcome
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
            if not self._again(run):
                return outcome.outcome
        outcome = await self._try(run)
        return outcome.outcome if isinstance(outcome, RolledBack) else outcome

    async def _try(self, run: RunningJob) -> Outcome | RolledBack:
        job, task, ctx, most = run.job, run.task, run.ctx, self._max_result_size
        timer: asyncio.TimerHandle | None = None

        def finishing(pid: int) -> None:
            nonlocal timer
            run.finishing = True
            timer = self._loop.call_later(_LOCK_PATIENCE, self._report_lock, job.id, pid)

        execute = partial(execute_in_transaction, self._transactions, job, task, ctx, most)
        if task.kind == "async":
            outcome = await execute(finishing)
        else:
            told = partial(self._loop.call_soon_threadsafe, finishing)
            outcome = await self._in_thread(lambda: finish(execute(told, blocking=True)))
        if timer is not None:
            timer.cancel()
        if not isinstance(outcome, InDoubt):
            return outcome
        # The commit is in doubt: look, never guess. If this run no longer holds the job, this run or another one has
        # finished it, and nothing is left to write.
        run.finishing = True
        if await self._still_held(job):
            return outcome_of(outcome.error, task, job.attempt)
        return NothingToWrite()

    async def _still_held(self, job: ClaimedJob) -> bool:
        # A connection for each: the answer may take long, and others must not wait for it.
        settling = self._connection.dedicated("settle")
        self._settling.add(settling)
        try:
            held = await settling.insist(queries.claims.still_held(job.id, job.epoch))
            return bool(held and held[0])
        finally:
            self._settling.discard(settling)
            settling.close()

    def _report_lock(self, job_id: str, pid: int) -> None:
        """Report why a transaction has not ended after its handler: most likely another session has locked the job."""
        self._reports.add(report := self._loop.create_task(self._say_who_holds(job_id, pid)))
        report.add_done_callback(self._reports.discard)

    async def _say_who_holds(self, job_id: str, pid: int) -> None:
        settling = self._connection.dedicated("settle")
        try:
            for holder in await settling.fetch(queries.locks.lock_holders([job_id], with_family=True)):
                if holder.pid != pid:
                    locks.report(self._events, "transaction", holder)
        except (psycopg.Error, OSError):
            pass  # only the log misses it
        finally:
            settling.close()
