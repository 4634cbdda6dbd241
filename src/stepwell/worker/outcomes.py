"""Gather how jobs ended and write that in batches.

While one flush is under way the next gathers; it leaves the moment the first returns. What cannot be written now, with
the database away or its disk full, is kept and tried again: the fence decides whether it still counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg

from stepwell import queries
from stepwell.batches import batches
from stepwell.error_text import storable
from stepwell.events import AttemptFailed, Events, OutcomeKept, OutcomeRefused, UpkeepFailed
from stepwell.job import ClaimedJob
from stepwell.outcome import Advanced, Cancelled, Failed, Outcome, Restarted, Settled, Snoozed, Succeeded, Suspended
from stepwell.queries import Move, Query
from stepwell.step import LEAST_UNDO_ATTEMPTS, is_undoing
from stepwell.task import Task
from stepwell.worker.link import Link

_MOST = 2000
_PROGRESS_PAUSE = 0.25
_KEPT_PAUSE = 1.0

# Each of these is written by a function of its own; the others end a job by stepwell.finish.
_OTHERS = (Failed, Snoozed, Suspended, Advanced, Restarted)

Ending = tuple[ClaimedJob, Task[..., Any], Outcome]


class Outcomes:
    """Where the runner leaves outcomes. `run` writes them, one flush after the other."""

    def __init__(self, link: Link, events: Events, wrote: Callable[[], None]) -> None:
        self._link = link
        self._events = events
        self._wrote = wrote
        self._waiting: list[Ending] = []
        self._under_way: list[Ending] = []
        self._kept: list[Ending] = []
        self._come = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._progress: dict[str, tuple[int, str]] = {}
        self.succeeded = 0
        self.failed = 0

    @property
    def count(self) -> int:
        """Outcomes not yet written."""
        return len(self._waiting) + len(self._under_way) + len(self._kept)

    @property
    def jobs(self) -> list[ClaimedJob]:
        """The jobs whose outcomes are not yet written."""
        return [job for job, _, _ in (*self._waiting, *self._under_way, *self._kept)]

    def add(self, job: ClaimedJob, task: Task[..., Any], outcome: Outcome) -> None:
        """Leave an outcome to be written."""
        if isinstance(outcome, Succeeded):
            self.succeeded += 1
        elif isinstance(outcome, Settled):
            self.succeeded += outcome.committed
            return
        elif isinstance(outcome, Failed):
            self.failed += 1
            self._events.emit(
                AttemptFailed(
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
            )
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
        while True:
            await self._come.wait()
            self._come.clear()
            while self._waiting:
                batch = next(batches(self._waiting, _MOST, _size))
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
        ended: list[Ending] = []
        others: dict[type[Outcome], list[Ending]] = {}
        for item in batch:
            kind = type(item[2])
            (others.setdefault(kind, []) if kind in _OTHERS else ended).append(item)
        for items in (ended, *others.values()):
            if items:
                await self._write(items)

    async def _write(self, items: list[Ending], *, again: bool = True) -> None:
        try:
            refused = await self._link.insist(_query(items))
        except psycopg.Error as error:
            if again and _was_rerouted(error):
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
                self._events.emit(OutcomeKept(job.id, " ".join(str(error).split()), _KEPT_PAUSE))
                asyncio.get_running_loop().call_later(_KEPT_PAUSE, self._again, items[0])
                self._kept.append(items[0])
                return
            message = storable(f"its outcome cannot be stored: {error}")
            await self._write([(job, task, Failed("bad_result", type(error).__name__, message, None, None))])
            return
        for job_id in refused[0] if refused else ():
            self._events.emit(OutcomeRefused(str(job_id)))

    async def _flush_progress(self) -> None:
        said, self._progress = self._progress, {}
        query = queries.report_progress(
            list(said), [epoch for epoch, _ in said.values()], [text for _, text in said.values()]
        )
        try:
            await self._link.insist(query)
        except psycopg.Error as error:
            # It is for looking at only: outcomes must not wait for it.
            self._events.emit(UpkeepFailed("writing progress", " ".join(str(error).split())))


def _max_attempts(job: ClaimedJob, task: Task[..., Any], failed: Failed) -> int:
    """The limit by which stepwell.fail decides."""
    most = job.max_attempts or failed.max_attempts or task.retry.max_attempts
    return max(most, LEAST_UNDO_ATTEMPTS) if is_undoing(job.journal) else most


def _was_rerouted(error: psycopg.Error) -> bool:
    return isinstance(error, psycopg.errors.CheckViolation) and "partition constraint" in str(error)


def _size(item: Ending) -> int:
    outcome = item[2]
    if isinstance(outcome, Succeeded):
        return len(outcome.result)
    if isinstance(outcome, Suspended):
        return len(outcome.wait)
    if isinstance(outcome, Advanced):
        return len(outcome.input)
    if isinstance(outcome, Restarted):
        return len(outcome.args)
    return len(outcome.message) + len(outcome.traceback or "") if isinstance(outcome, Failed) else 0


def _query(items: list[Ending]) -> Query[list[Any]]:
    ids = [job.id for job, _, _ in items]
    epochs = [job.epoch for job, _, _ in items]
    if isinstance(items[0][2], Failed):
        failures = [(task, outcome) for _, task, outcome in items if isinstance(outcome, Failed)]
        return queries.fail(
            ids,
            epochs,
            [outcome.reason for _, outcome in failures],
            [outcome.type for _, outcome in failures],
            [outcome.message for _, outcome in failures],
            [outcome.traceback for _, outcome in failures],
            [outcome.delay for _, outcome in failures],
            [outcome.max_attempts or task.retry.max_attempts for task, outcome in failures],
            [task.keep_failed for task, _ in failures],
            [outcome.step for _, outcome in failures],
            _parents(items),
            [outcome.beside for _, outcome in failures],
        )
    if isinstance(items[0][2], Snoozed):
        return queries.snooze(ids, epochs, [o.delay for _, _, o in items if isinstance(o, Snoozed)])
    if isinstance(items[0][2], Suspended):
        return queries.suspend(ids, epochs, [o.wait for _, _, o in items if isinstance(o, Suspended)])
    if isinstance(items[0][2], Restarted):
        return queries.restart(ids, epochs, [o.args for _, _, o in items if isinstance(o, Restarted)])
    if isinstance(items[0][2], Advanced):
        return queries.advance(
            [
                Move(job.id, job.epoch, o.left, o.cursor, o.input, o.n, o.delay, o.queue)
                for job, _, o in items
                if isinstance(o, Advanced)
            ]
        )
    return finish_query(items)


def _parents(items: list[Ending]) -> list[str]:
    return [job.parent_id for job, _, _ in items if job.parent_id is not None]


def finish_query(items: list[Ending]) -> Query[list[Any]]:
    """The statement that ends jobs which succeeded, were cancelled, or have been undone."""
    return queries.finish(
        [job.id for job, _, _ in items],
        [job.epoch for job, _, _ in items],
        [outcome.result if isinstance(outcome, Succeeded) else None for _, _, outcome in items],
        [task.keep if isinstance(outcome, Succeeded) else task.keep_failed for _, task, outcome in items],
        ["succeeded" if isinstance(outcome, Succeeded) else "cancelled" for _, _, outcome in items],
        [outcome.reason if isinstance(outcome, Cancelled) else None for _, _, outcome in items],
        _parents(items),
    )
