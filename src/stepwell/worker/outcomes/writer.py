"""Gather how jobs ended and write that in batches.

While one flush is under way the next gathers; it leaves the moment the first returns. What cannot be written now, with
the database away, its disk full or the job locked by another session, is kept and tried again: the fence decides
whether it still counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import psycopg

from stepwell.jobs.task import Task
from stepwell.postgres import queries
from stepwell.postgres.batches import batches
from stepwell.postgres.errors import in_short, is_rolled_back
from stepwell.postgres.queries.outcomes import HeldMisfits
from stepwell.telemetry.events import (
    AttemptFailed,
    Events,
    JobMisfit,
    OutcomeKept,
    OutcomeRefused,
    OutcomesHeldUp,
    UpkeepFailed,
)
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Failed, Misfit, Outcome, Settled, Succeeded
from stepwell.values.step import LEAST_UNDO_ATTEMPTS, is_undoing
from stepwell.worker.link import Link
from stepwell.worker.outcomes.locks import Locks
from stepwell.worker.outcomes.outcome_query import ENDS, Ending, failure_of, needs_family, query_of, size_of

_MOST = 2000
_PROGRESS_PAUSE = 0.25
_PROGRESS_PATIENCE = 0.05
_PROGRESS_QUIET = 2.0
_KEPT_PAUSE = 1.0
_HELD_UP_PAUSE = 0.1


class Outcomes:
    """Where the runner leaves outcomes. `run` writes them, one flush after the other."""

    def __init__(
        self,
        link: Link,
        events: Events,
        wrote: Callable[[], None],
        count: Callable[[ClaimedJob, Outcome | None, float], None],
    ) -> None:
        self._link = link
        self._events = events
        self._wrote = wrote
        self._count = count
        # How long each run took whose outcome is not yet written. What never ran has none.
        self._seconds: dict[tuple[str, int], float] = {}
        self._locks = Locks(link, events, "outcome")
        self._waiting: list[Ending] = []
        self._under_way: list[Ending] = []
        self._kept: list[Ending] = []
        self._come = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._progress: dict[str, tuple[int, str]] = {}
        self._quiet: dict[str, float] = {}
        self.succeeded = 0
        self.failed = 0

    @property
    def count(self) -> int:
        """Outcomes not yet written."""
        return len(self._waiting) + len(self._under_way) + len(self._kept)

    @property
    def size(self) -> int:
        """About how many bytes the outcomes not yet written take, with their jobs."""
        return sum(item[0].size + size_of(item) for item in (*self._waiting, *self._under_way, *self._kept))

    @property
    def jobs(self) -> list[ClaimedJob]:
        """The jobs whose outcomes are not yet written."""
        return [job for job, _, _ in (*self._waiting, *self._under_way, *self._kept)]

    @property
    def locked(self) -> int:
        """Of the outcomes not yet written, those whose jobs other sessions have locked."""
        return sum(job.id in self._locks for job in self.jobs)

    def add(self, job: ClaimedJob, task: Task[..., Any], outcome: Outcome, seconds: float | None = None) -> None:
        """Leave an outcome to be written. `seconds` is how long the job ran; None: it did not."""
        if seconds is not None:
            self._seconds[job.id, job.epoch] = seconds
        if isinstance(outcome, Settled):
            self._note(job, outcome if outcome.committed else None)
            return
        if isinstance(outcome, Misfit):
            self._events.emit(JobMisfit(job.id, job.task, outcome.failed.message, task.job_store.misfit_grace))
            outcome = Misfit(_without_error(outcome.failed))
        elif isinstance(outcome, Failed):
            failed = AttemptFailed(
                job.id,
                job.task,
                outcome.attempt or job.attempt,
                _max_attempts(job, task, outcome),
                outcome.reason,
                outcome.type,
                outcome.message,
                outcome.traceback,
                outcome.delay,
            )
            self._events.emit(failed, outcome.error if failed.final else None)
            outcome = _without_error(outcome)
        self._waiting.append((job, task, outcome))
        self._come.set()
        self._empty.clear()

    def report(self, job: ClaimedJob, said: str) -> None:
        """Leave a word on a running job's progress; only the last one counts."""
        self._progress[job.id] = (job.epoch, said)
        self._come.set()

    def _again(self, item: Ending) -> None:
        self._kept.remove(item)
        self._waiting.append(item)
        self._come.set()

    async def written(self) -> None:
        """Wait until nothing is left to write."""
        await self._empty.wait()

    async def run(self) -> None:
        """Write outcomes as they come, until cancelled."""
        loop = asyncio.get_running_loop()
        progress_at = 0.0
        if self._under_way:
            # An error ended the last round midway. What it has written is refused by the fence.
            kept = set(map(id, self._kept))
            self._waiting[:0] = [item for item in self._under_way if id(item) not in kept]
            self._under_way = []
            self._come.set()
        while True:
            await self._come.wait()
            self._come.clear()
            while self._waiting:
                batch = next(batches(self._waiting, _MOST, size_of))
                self._waiting = self._waiting[len(batch) :]
                self._under_way = batch
                await self._flush(batch)
                self._under_way = []
                self._wrote()
            if not self._kept:
                self._empty.set()
            if self._progress:
                if loop.time() >= progress_at:
                    progress_at = loop.time() + _PROGRESS_PAUSE
                    await self._flush_progress()
                else:
                    loop.call_at(progress_at, self._come.set)

    async def _flush(self, batch: list[Ending]) -> None:
        if len({item[0].id for item in batch}) < len(batch):
            # Two runs of a job are not written together: a refusal names only the job.
            first = list({item[0].id: item for item in reversed(batch)}.values())[::-1]
            await self._flush(first)
            await self._flush(_without(batch, first))
            return
        ended: list[Ending] = []
        others: dict[type[Outcome], list[Ending]] = {}
        for item in batch:
            kind = type(item[2])
            (ended if kind in ENDS else others.setdefault(kind, [])).append(item)
        for items in (ended, *others.values()):
            if items:
                await self._write(items)

    async def _write(self, items: list[Ending], *, again: bool = True) -> None:
        """Write outcomes of one kind; those that cannot be written now are kept."""
        known = [item for item in items if item[0].id in self._locks]
        if known:
            # They were locked before: look, and wait for them only when they are free.
            items = _without(items, await self._set_aside(known) or [])
        pause = _HELD_UP_PAUSE
        while items:
            try:
                refused = await self._link.insist(query_of(items, self._locks.patience), waits_for_locks=False)
            except psycopg.errors.LockNotAvailable:
                aside = await self._set_aside(items)
                if len(items) == 1:
                    if not aside:
                        self._keep_locked(items[0])
                    return
                if aside is None:
                    half = len(items) // 2
                    await self._write(items[:half])
                    await self._write(items[half:])
                    return
                items = _without(items, aside)
                if not aside:
                    # All of them are held up by something else, or by nobody any more.
                    if pause == _HELD_UP_PAUSE:
                        self._events.emit(OutcomesHeldUp(len(items)))
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _KEPT_PAUSE)
            except psycopg.Error as error:
                await self._write_apart(items, error, again=again)
                return
            else:
                if known:
                    for item in items:
                        self._locks.forget(item[0].id)
                answer: list[Any] | HeldMisfits = refused[0] if refused else []
                if isinstance(answer, HeldMisfits):
                    items = self._fail_expired(items, answer)
                    answer = answer.refused
                late = {str(job_id) for job_id in answer}
                for job_id in late:
                    self._events.emit(OutcomeRefused(job_id))
                for job, _, outcome in items:
                    self._note(job, None if job.id in late else outcome)
                return

    def _note(self, job: ClaimedJob, outcome: Outcome | None) -> None:
        """Count an outcome that was written; None: it was refused."""
        if isinstance(outcome, Succeeded) or (isinstance(outcome, Settled) and not outcome.moved_on):
            self.succeeded += 1
        elif isinstance(outcome, Failed):
            self.failed += 1
        seconds = self._seconds.pop((job.id, job.epoch), None)
        if seconds is not None:
            self._count(job, outcome, seconds)

    def _fail_expired(self, items: list[Ending], held: HeldMisfits) -> list[Ending]:
        """Fail the misfits that have waited long enough; return the others."""
        over = {str(job_id) for job_id in held.expired}
        expired = [item for item in items if item[0].id in over]
        for job, task, outcome in expired:
            assert isinstance(outcome, Misfit)
            self.add(job, task, msgspec.structs.replace(outcome.failed, delay=None))
        return _without(items, expired)

    async def _write_apart(self, items: list[Ending], error: psycopg.Error, *, again: bool) -> None:
        """The server refused these for what they say, or for what its triggers say."""
        if again and is_rolled_back(error):
            # A partition was made while this waited to write to the default one: now it finds its own.
            await self._write(items, again=False)
            return
        if len(items) > 1:
            # One bad row must not fail its batch.
            for item in items:
                await self._write([item])
            return
        job, task, outcome = items[0]
        if isinstance(outcome, Failed) or not isinstance(error, psycopg.DataError):
            # Not for what it says, then: a trigger of somebody's, perhaps. Keep it, and do not hold up the others.
            self._events.emit(OutcomeKept(job.id, in_short(error), _KEPT_PAUSE))
            self._keep(items[0], _KEPT_PAUSE)
            return
        self.add(job, task, failure_of(task, error))

    async def _set_aside(self, items: list[Ending]) -> list[Ending] | None:
        """Keep those whose jobs are locked; return them. None: it cannot be told which they are."""
        locked = await self._locks.find([job.id for job, _, _ in items], with_family=needs_family(items[0]))
        if locked is None:
            return None
        aside = [item for item in items if item[0].id in locked]
        for item in aside:
            self._keep_locked(item)
        return aside

    def _keep_locked(self, item: Ending) -> None:
        self._keep(item, self._locks.set_aside(item[0].id))

    def _keep(self, item: Ending, pause: float) -> None:
        self._kept.append(item)
        asyncio.get_running_loop().call_later(pause, self._again, item)

    async def _flush_progress(self) -> None:
        now = asyncio.get_running_loop().time()
        said = {job_id: word for job_id, word in self._progress.items() if self._quiet.get(job_id, now) <= now}
        self._progress = {job_id: word for job_id, word in self._progress.items() if job_id not in said}
        if not said:
            return
        query = queries.outcomes.report_progress(
            list(said), [epoch for epoch, _ in said.values()], [text for _, text in said.values()]
        )
        try:
            await self._link.insist(queries.locks.bounded(query, _PROGRESS_PATIENCE), waits_for_locks=False)
        except psycopg.errors.LockNotAvailable:
            # Say nothing of those that are locked for a while: outcomes go over this connection, too.
            locked = await self._locks.find(said, with_family=False)
            self._quiet |= dict.fromkeys(said if locked is None else locked, now + _PROGRESS_QUIET)
            self._progress = said | self._progress
        except psycopg.Error as error:
            # It is for looking at only: outcomes must not wait for it.
            self._events.emit(UpkeepFailed("writing progress", in_short(error)))
        else:
            for job_id in said:
                self._quiet.pop(job_id, None)


def _without_error(failed: Failed) -> Failed:
    """An exception holds all that its frames hold: it is not kept while the database is away."""
    return msgspec.structs.replace(failed, error=None)


def _without(items: list[Ending], others: list[Ending]) -> list[Ending]:
    gone = {id(item) for item in others}
    return [item for item in items if id(item) not in gone]


def _max_attempts(job: ClaimedJob, task: Task[..., Any], failed: Failed) -> int:
    """The limit by which stepwell.fail decides."""
    most = job.max_attempts or failed.max_attempts or task.retry.max_attempts
    return max(most, LEAST_UNDO_ATTEMPTS) if is_undoing(job.journal) else most
