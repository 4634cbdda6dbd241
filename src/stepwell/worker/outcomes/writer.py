"""Gather how jobs ended, announce it and write it in batches.

While one flush is under way the next one gathers; it starts the moment the first returns. Outcomes that cannot be
written now, because the database is away, its disk is full or another session has locked the job, are kept and tried
again: the fence decides whether they still count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import psycopg
from msgspec.structs import replace

from stepwell.postgres.coalesce import batches
from stepwell.postgres.errors import in_short, is_rolled_back
from stepwell.postgres.queries.outcomes import HeldMisfits
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.jobs import (
    EndedRunFacts,
    JobSucceeded,
    OutcomeKept,
    OutcomeRefused,
    OutcomesHeldUp,
    OutcomesWritten,
    RunsEnded,
)
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Failed, Misfit, NothingToWrite, Outcome, Succeeded
from stepwell.worker.locks import Locks
from stepwell.worker.outcomes.outcome_table import REFUSED, TABLE, EndedRun, announce, failure_of, size_of
from stepwell.worker.outcomes.progress import Progress
from stepwell.worker.waited import waited_at
from stepwell.worker.worker_connection import WorkerConnection

_MOST = 2000
_KEPT_PAUSE = 1.0
_HELD_UP_PAUSE = 0.1

_Ended: TypeAlias = EndedRun[Outcome]


class OutcomeWriter:
    """The outcomes that runners leave here. `run` writes them, one flush after the other. `count` is called with runs
    whose outcomes were written or refused, and with the counter if it is not that of the outcome."""

    def __init__(
        self, connection: WorkerConnection, events: EventBus, count: Callable[[list[_Ended], str | None], None]
    ) -> None:
        self._connection = connection
        self._events = events
        self._count = count
        self._locks = Locks(connection, events, "outcome")
        self._progress = Progress(connection, self._locks, events)
        self._waiting: list[_Ended] = []
        self._under_way: list[_Ended] = []
        self._kept: list[_Ended] = []
        self._cut_off: set[tuple[str, int]] = set()
        """The ids and epochs of runs whose last flush was cut off: it may have written them."""
        self._come = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self.wakes: list[asyncio.Event] = []
        """Set after each flush."""
        self.succeeded = 0
        self.failed = 0

    @property
    def count(self) -> int:
        return len(self._waiting) + len(self._under_way) + len(self._kept)

    @property
    def size(self) -> int:
        """About how many bytes the outcomes not yet written take, with their jobs."""
        return sum(run.job.size + size_of(run) for run in (*self._waiting, *self._under_way, *self._kept))

    @property
    def jobs(self) -> list[ClaimedJob]:
        return [run.job for run in (*self._waiting, *self._under_way, *self._kept)]

    @property
    def locked(self) -> int:
        """How many of the outcomes not yet written wait for other sessions' locks."""
        return sum(job.id in self._locks for job in self.jobs)

    def add(self, run: _Ended) -> None:
        """Announce an outcome and leave it to be written."""
        outcome = run.outcome
        if type(outcome) is Succeeded and not self._events.wanted(JobSucceeded):
            self._leave([run])
            return
        if isinstance(outcome, NothingToWrite):
            if outcome.written is None:
                self._note([run], REFUSED)
            else:
                written = run._replace(outcome=outcome.written)
                announce(written, self._events)
                self._note([written])
            return
        announce(run, self._events)
        # An exception holds all that its frames hold: it is not kept while the database is away.
        if isinstance(outcome, Failed):
            run = run._replace(outcome=replace(outcome, error=None))
        elif isinstance(outcome, Misfit):
            run = run._replace(outcome=Misfit(replace(outcome.failed, error=None)))
        self._leave([run])

    def add_all(self, runs: list[_Ended]) -> None:
        """The same for the runs of a batch. Most of them succeed, and nobody wants to hear of each."""
        if self._events.wanted(JobSucceeded) or any(type(run.outcome) is not Succeeded for run in runs):
            for run in runs:
                self.add(run)
        elif runs:
            self._leave(runs)

    def _leave(self, runs: list[_Ended]) -> None:
        self._waiting += runs
        self._come.set()
        self._empty.clear()

    def report(self, job: ClaimedJob, text: str) -> None:
        self._progress.report(job, text)
        self._come.set()

    async def written(self) -> None:
        await self._empty.wait()

    async def flushed(self) -> None:
        """Wait until the flush that is under way has ended, if there is one."""
        if self._under_way:
            self.wakes.append(ended := asyncio.Event())
            try:
                await ended.wait()
            finally:
                self.wakes.remove(ended)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        if self._under_way:
            # An error ended the last flush midway. The fence refuses what it has written.
            kept = set(map(id, self._kept))
            again = [run for run in self._under_way if id(run) not in kept]
            self._cut_off |= {(run.job.id, run.job.epoch) for run in again}
            self._waiting[:0] = again
            self._under_way = []
            self._come.set()
        while True:
            await self._come.wait()
            self._come.clear()
            while self._waiting:
                batch = next(batches(self._waiting, _MOST, size_of))
                self._waiting = self._waiting[len(batch) :]
                self._under_way = batch
                began = loop.time()
                await self._flush(batch)
                self._under_way = []
                if self._events.wanted(OutcomesWritten):
                    self._events.emit(OutcomesWritten(len(batch), loop.time() - began))
                for wake in self.wakes:
                    wake.set()
            self._cut_off.clear()
            if not self._kept:
                self._empty.set()
            if (again_at := await self._progress.flush()) is not None:
                loop.call_at(again_at, self._come.set)

    async def _flush(self, batch: list[_Ended]) -> None:
        if len({run.job.id for run in batch}) < len(batch):
            # Two runs of a job are not written together: a refusal names only the job.
            first = list({run.job.id: run for run in reversed(batch)}.values())[::-1]
            await self._flush(first)
            await self._flush(_without(batch, first))
            return
        by_statement: dict[object, list[_Ended]] = {}
        for run in batch:
            by_statement.setdefault(TABLE[type(run.outcome)].write, []).append(run)
        for runs in by_statement.values():
            await self._write(runs)

    async def _write(self, runs: list[_Ended], *, again: bool = True) -> None:
        """Write outcomes that share a statement. Outcomes that cannot be written now are kept."""
        known = [run for run in runs if run.job.id in self._locks]
        if known:
            # They were locked before: look first, and wait only for those that are free.
            runs = _without(runs, await self._set_aside(known) or [])
        pause = _HELD_UP_PAUSE
        while runs:
            query = TABLE[type(runs[0].outcome)].write(runs, self._locks.patience)
            try:
                answer = await self._connection.insist(query, waits_for_locks=False)
            except psycopg.errors.LockNotAvailable:
                aside = await self._set_aside(runs)
                if len(runs) == 1:
                    if not aside:
                        self._keep_locked(runs[0])
                    return
                if aside is None:
                    half = len(runs) // 2
                    await self._write(runs[:half])
                    await self._write(runs[half:])
                    return
                runs = _without(runs, aside)
                if not aside:
                    # The lock is on something else than these jobs, or is gone by now.
                    if pause == _HELD_UP_PAUSE:
                        self._events.emit(OutcomesHeldUp(len(runs)))
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _KEPT_PAUSE)
            except psycopg.Error as error:
                await self._write_singly(runs, error, again=again)
                return
            else:
                if known:
                    for run in runs:
                        self._locks.forget(run.job.id)
                self._take_answer(runs, answer[0] if answer else [])
                return

    def _take_answer(self, runs: list[_Ended], answer: list[Any] | HeldMisfits) -> None:
        """Count the runs that are written, and those that the fence refused. A refused run whose last flush was cut off
        counts as written, because that flush may have written it."""
        if isinstance(answer, HeldMisfits):
            expired = {str(job_id) for job_id in answer.expired}
            answer = answer.refused
            for run in runs:
                # A misfit that has waited for its grace fails.
                if run.job.id in expired and isinstance(run.outcome, Misfit):
                    self.add(run._replace(outcome=replace(run.outcome.failed, delay=None)))
            runs = [run for run in runs if run.job.id not in expired]
        if answer:
            cut_off = {run.job.id for run in runs if (run.job.id, run.job.epoch) in self._cut_off}
            ids = {str(job_id) for job_id in answer} - cut_off
            refused = [run for run in runs if run.job.id in ids]
            runs = [run for run in runs if run.job.id not in ids]
            for run in refused:
                self._events.emit(OutcomeRefused(*run.about))
            self._note(refused, REFUSED)
        self._note(runs)

    def _note(self, runs: list[_Ended], counter: str | None = None) -> None:
        if counter is None:
            kinds = [type(run.outcome) for run in runs]
            self.succeeded += kinds.count(Succeeded)
            self.failed += kinds.count(Failed)
        self._count(runs, counter)
        if self._events.wanted(RunsEnded):
            to_clock = time.time() - time.perf_counter()
            facts = [
                EndedRunFacts(
                    job.task, job.queue, counter or TABLE[type(outcome)].counter, seconds,
                    waited_at(to_clock + began, job, task),
                )
                for job, task, outcome, _, seconds, began in runs
                if seconds is not None
            ]  # fmt: skip
            if facts:
                self._events.emit(RunsEnded(facts))

    async def _write_singly(self, runs: list[_Ended], error: psycopg.Error, *, again: bool) -> None:
        """The server, or one of its triggers, refused a value in these outcomes."""
        if again and is_rolled_back(error):
            # A partition was made while this waited to write to the default one. The next try finds the new partition.
            await self._write(runs, again=False)
            return
        if len(runs) > 1:
            # One bad row must not fail its batch.
            for run in runs:
                await self._write([run])
            return
        [run] = runs
        if isinstance(run.outcome, Failed) or not isinstance(error, psycopg.DataError):
            # No value of ours is at fault; a user's trigger may be. Keep the outcome, and do not hold up the others.
            self._events.emit(OutcomeKept(*run.about, in_short(error), _KEPT_PAUSE))
            self._keep(run, _KEPT_PAUSE)
            return
        self.add(run._replace(outcome=failure_of(run.task, error)))

    async def _set_aside(self, runs: list[_Ended]) -> list[_Ended] | None:
        """Keep the runs whose jobs are locked, and return them. None: it cannot be found out which they are."""
        may_end = TABLE[type(runs[0].outcome)].may_end
        locked = await self._locks.find([run.job.id for run in runs], with_family=may_end)
        if locked is None:
            return None
        aside = [run for run in runs if run.job.id in locked]
        for run in aside:
            self._keep_locked(run)
        return aside

    def _keep_locked(self, run: _Ended) -> None:
        self._keep(run, self._locks.set_aside(run.job.id))

    def _keep(self, run: _Ended, pause: float) -> None:
        self._kept.append(run)
        asyncio.get_running_loop().call_later(pause, self._write_again, run)

    def _write_again(self, run: _Ended) -> None:
        self._kept.remove(run)
        self._waiting.append(run)
        self._come.set()


def _without(runs: list[_Ended], others: list[_Ended]) -> list[_Ended]:
    gone = {id(run) for run in others}
    return [run for run in runs if id(run) not in gone]
