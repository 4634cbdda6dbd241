"""The storage behind the durable API: running jobs save their steps here, and concurrent saves share a round trip."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

import msgspec
import psycopg

from stepwell.durable.backend import OpenTransaction, StepBackend
from stepwell.durable.exits import Lost
from stepwell.errors import BadValue, JobExists, TooLarge
from stepwell.plugins.enqueue import Enqueue
from stepwell.plugins.loaded import LoadedPlugins
from stepwell.postgres import queries
from stepwell.postgres.coalesce import Coalescer, batches
from stepwell.postgres.database import Database
from stepwell.postgres.errors import is_transient, stepwell_error
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.outcomes import Move
from stepwell.postgres.queries.steps import Saving, Spawning
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.enqueue import JobEnqueued
from stepwell.values.headers import add_headers, headers_in, read_headers
from stepwell.values.job import ClaimedJob, NewJob
from stepwell.values.sealing import Sealer
from stepwell.values.step import NewStep
from stepwell.worker.locks import Locks
from stepwell.worker.steps.open_transaction import open_transaction
from stepwell.worker.steps.step_threads import StepThreads
from stepwell.worker.worker_connection import WorkerConnection

T = TypeVar("T")
Row = TypeVar("Row")
Item = TypeVar("Item", Saving, Spawning, Move)
Answer = TypeVar("Answer")

_MOST = 2000


class StepStore:
    """The steps of all jobs that a worker runs, over one connection. `backend` is how the durable API reaches it."""

    def __init__(
        self,
        connection: WorkerConnection,
        transactions: Database,
        max_value_size: int,
        threads: StepThreads,
        events: EventBus,
        handle: Callable[[str], object],
        plugins: LoadedPlugins,
        sealer: Sealer,
    ) -> None:
        self._events = events
        self._plugins = plugins
        self._handle = handle
        self._connection = connection
        self._locks = Locks(connection, events, "step")
        self._lock = asyncio.Lock()
        self._closed = False
        self._saves: Coalescer[Saving, datetime] = Coalescer(
            self._save_batch, _nothing_written, lambda savings: batches(savings, _MOST, _size)
        )
        self._spawns: Coalescer[Spawning, str] = Coalescer(
            self._spawn_batch, _nothing_written, lambda new: batches(new, _MOST, lambda child: len(child.job.args))
        )
        self._moves: Coalescer[Move, None] = Coalescer(
            self._advance_batch, _nothing_written, lambda moves: batches(moves, _MOST, lambda move: len(move.input))
        )
        self.backend = StepBackend(
            max_value_size=max_value_size,
            loop=asyncio.get_running_loop(),
            run_in_thread=threads.run,
            save=self._save,
            spawn=self._spawn,
            advance=self._advance,
            read_large=self._read_large,
            cancel=self._cancel,
            forget_waits=self._forget_waits,
            save_waits=self._save_waits,
            was_saved=self._was_saved,
            transaction=lambda blocking, sessions: open_transaction(transactions, sessions, blocking=blocking),
            save_in=_save_in,
            wrap_step=plugins.wrapping_step if plugins.wraps_step else None,
            sealer=sealer,
        )

    def close(self) -> None:
        self._closed = True

    async def _save(self, job: ClaimedJob, steps: Sequence[NewStep]) -> datetime:
        saving = Saving(job.id, job.epoch, steps)
        try:
            try:
                # As `_outlast` does, without a coroutine more: nothing is called as often as this.
                return await self._saves.submit(saving)
            except _Locked:
                pass  # handled below: else it would be the context of every later error
            return await self._write_when_free(partial(self._saves.submit, saving), (job.id,))
        except asyncio.CancelledError:
            # The step's function has run: without this second save its effect could not be compensated.
            await self._outlast(partial(self._saves.submit, saving), (job.id,))
            raise

    async def _spawn(self, job: ClaimedJob, children: Sequence[tuple[NewStep, NewJob]]) -> list[str]:
        if not self._plugins.wraps_enqueue:
            return await self._spawn_with(job, children, headers_in(job.policy))
        tasks, queues = {child.task for _, child in children}, {child.queue for _, child in children}
        enqueue = Enqueue(
            tasks.pop() if len(tasks) == 1 else None,
            queues.pop() if len(queues) == 1 else None,
            len(children),
            many=len(children) > 1,
            in_transaction=False,
            parent_id=job.id,
        )
        with self._plugins.enqueuing(enqueue):
            headers = self._plugins.encoded_headers(enqueue, read_headers(job.policy)) or headers_in(job.policy)
            ids = await self._spawn_with(job, children, headers)
            enqueue.job_ids += ids
        return ids

    async def _spawn_with(
        self, job: ClaimedJob, children: Sequence[tuple[NewStep, NewJob]], headers: str | None
    ) -> list[str]:
        if headers is not None:
            children = [
                (step, msgspec.structs.replace(child, policy=add_headers(child.whole_policy, headers)))
                for step, child in children
            ]
        spawnings = [Spawning(job.id, job.epoch, step, child) for step, child in children]

        async def write() -> list[str]:
            return await asyncio.gather(*(self._spawns.submit(spawning) for spawning in spawnings))

        ids = await self._outlast(write, (job.id,))
        if self._events.wanted(JobEnqueued):
            for child_id, (_, child) in zip(ids, children, strict=True):
                self._events.emit(JobEnqueued(child_id, child.task, child.queue or "default", 0, parent_id=job.id))
        return ids

    async def _advance(self, job: ClaimedJob, left: str | None, cursor: str, value: str, n: int) -> None:
        move = Move(job.id, job.epoch, left, cursor, value, n)
        await self._outlast(lambda: self._moves.submit(move), (job.id,))

    async def _read_large(self, job: ClaimedJob, key: str) -> str:
        return (await self._ask(queries.steps.large_value(job.id, key)))[0]

    async def _cancel(self, job_ids: list[str]) -> None:
        query = queries.jobs.cancel_branches(job_ids, "another branch came first")
        await self._ask_bounded(query, job_ids, with_family=True)

    async def _forget_waits(self, job: ClaimedJob, keys: list[str]) -> None:
        query = queries.steps.forget_waits(job.id, job.epoch, keys)
        if not (await self._ask_bounded(query, (job.id,), with_family=False))[0]:
            raise Lost

    async def _save_waits(self, job: ClaimedJob, wait: str) -> None:
        query = queries.steps.save_waits(job.id, job.epoch, wait)
        if not (await self._ask_bounded(query, (job.id,), with_family=False))[0]:
            raise Lost

    async def _was_saved(self, job: ClaimedJob, key: str) -> bool:
        # The query waits for the session whose commit is in doubt, until the server has noticed that it is gone. So it
        # runs on a connection of its own: the other jobs must not wait for it.
        settling = self._connection.dedicated("settle")
        try:
            rows = await settling.insist(queries.steps.step_saved(job.id, job.epoch, key), lambda: not self._closed)
        finally:
            settling.close()
        if rows is None or rows[0] is None:
            raise Lost
        return rows[0]

    async def _ask(self, query: Query[Row], *, waits_for_locks: bool = True) -> list[Row]:
        """Run a query until it is answered or the worker has ended. Unless it `waits_for_locks`: `LockNotAvailable`."""
        async with self._lock:
            try:
                rows = await self._connection.insist(query, lambda: not self._closed, waits_for_locks=waits_for_locks)
            except psycopg.DataError as error:
                if isinstance(refused := stepwell_error(error), TooLarge):
                    raise refused from None
                raise
        if rows is None:
            raise Lost
        return rows

    async def _ask_bounded(self, query: Query[Row], job_ids: Sequence[str], *, with_family: bool) -> list[Row]:
        """Run a query, and let other queries go first while these jobs are locked."""
        return await self._outlast(
            lambda: self._ask_if_free(query, job_ids, with_family=with_family), job_ids, with_family=with_family
        )

    async def _ask_if_free(self, query: Query[Row], job_ids: Sequence[str], *, with_family: bool) -> list[Row]:
        try:
            return await self._ask(queries.locks.bounded(query, self._locks.patience), waits_for_locks=False)
        except psycopg.errors.LockNotAvailable:
            await self._find(job_ids, with_family=with_family)
            raise _Locked from None

    async def _outlast(
        self, write: Callable[[], Awaitable[T]], job_ids: Sequence[str], *, with_family: bool = False
    ) -> T:
        """Write. While that raises `_Locked`, write again when the jobs are free."""
        try:
            return await write()
        except _Locked:
            pass
        return await self._write_when_free(write, job_ids, with_family=with_family)

    async def _write_when_free(
        self, write: Callable[[], Awaitable[T]], job_ids: Sequence[str], *, with_family: bool = False
    ) -> T:
        try:
            while True:
                await asyncio.sleep(max(self._locks.set_aside(job_id) for job_id in job_ids))
                if await self._find(job_ids, with_family=with_family):
                    continue
                with contextlib.suppress(_Locked):
                    return await write()
        finally:
            for job_id in job_ids:
                self._locks.forget(job_id)

    async def _find(self, job_ids: Iterable[str], *, with_family: bool) -> set[str] | None:
        async with self._lock:
            if self._closed:
                raise Lost
            return await self._locks.find(set(job_ids), with_family=with_family)

    async def _without_locked(
        self, items: list[Item], write: Callable[[list[Item]], Awaitable[Sequence[Answer]]]
    ) -> Sequence[Answer | _Locked]:
        """Write a batch again that met a lock, without the locked jobs, which are answered `_Locked`."""
        if len({item.job_id for item in items}) == 1:
            await self._find([items[0].job_id], with_family=False)
            return [_Locked() for _ in items]
        locked = await self._find([item.job_id for item in items], with_family=False)
        if locked is None:
            half = len(items) // 2
            return [*await write(items[:half]), *await write(items[half:])]
        free = [item for item in items if item.job_id not in locked] if locked else []
        answers = iter(await write(free) if free else ())
        return [next(answers) if locked and item.job_id not in locked else _Locked() for item in items]

    async def _save_batch(self, savings: list[Saving]) -> Sequence[datetime | Lost | _Locked]:
        try:
            query = queries.steps.save_steps(savings, self._locks.patience)
            refused, at = (await self._ask(query, waits_for_locks=False))[0]
        except psycopg.errors.LockNotAvailable:
            return await self._without_locked(savings, self._save_batch)
        except TooLarge as error:
            raise _too_large([step for saving in savings for step in saving.steps], error) from None
        if not refused:
            return [at] * len(savings)
        lost = {str(job_id) for job_id in refused}
        if _two_runs(savings):
            return [(await self._save_batch([saving]))[0] if saving.job_id in lost else at for saving in savings]
        return [Lost() if saving.job_id in lost else at for saving in savings]

    async def _spawn_batch(self, children: list[Spawning]) -> Sequence[str | Lost | _Locked]:
        try:
            query = queries.locks.bounded(queries.steps.spawn(children), self._locks.patience)
            ids = (await self._ask(query, waits_for_locks=False))[0]
        except psycopg.errors.LockNotAvailable:
            return await self._without_locked(children, self._spawn_batch)
        except TooLarge as error:
            raise BadValue(f"child {children[0].step.key!r}: {error}") from None
        except psycopg.Error as error:
            if isinstance(exists := stepwell_error(error), JobExists):
                exists.job = self._handle(exists.job_id)
                raise exists from None
            raise
        return [Lost() if child_id is None else str(child_id) for child_id in ids]

    async def _advance_batch(self, moves: list[Move]) -> Sequence[Lost | _Locked | None]:
        try:
            query = queries.locks.bounded(queries.outcomes.advance(moves), self._locks.patience)
            lost = {str(job_id) for job_id in (await self._ask(query, waits_for_locks=False))[0]}
        except psycopg.errors.LockNotAvailable:
            return await self._without_locked(moves, self._advance_batch)
        except TooLarge as error:
            raise BadValue(f"the input of step {moves[0].cursor!r}: {error}") from None
        if lost and _two_runs(moves):
            return [(await self._advance_batch([move]))[0] if move.job_id in lost else None for move in moves]
        return [Lost() if move.job_id in lost else None for move in moves]


class _Locked(Exception):
    """Another session has locked the job: write again when it is free."""


async def _save_in(opened: OpenTransaction, job: ClaimedJob, steps: Sequence[NewStep]) -> None:
    try:
        refused, _ = (await opened.run(queries.steps.save_steps([Saving(job.id, job.epoch, steps)])))[0]
    except psycopg.DataError as error:
        if isinstance(too_large := stepwell_error(error), TooLarge):
            raise _too_large(steps, too_large) from None
        raise
    if refused:
        raise Lost


def _too_large(steps: Sequence[NewStep], error: TooLarge) -> BadValue:
    largest = max(steps, key=lambda step: len(step.value or ""))
    return BadValue(f"step {largest.key!r} has a value {str(error).removeprefix('step ')}")


def _nothing_written(error: Exception) -> bool:
    """Whether an error shows that nothing of a batch was written, so that its items may be written one by one."""
    return isinstance(error, BadValue | JobExists) or (isinstance(error, psycopg.Error) and not is_transient(error))


def _two_runs(items: Sequence[Saving] | Sequence[Move]) -> bool:
    """Whether two runs of one job are in the batch, of which only one holds it: a refusal names only the job."""
    runs = {(item.job_id, item.epoch) for item in items}
    return len(runs) > len({job_id for job_id, _ in runs})


def _size(saving: Saving) -> int:
    size = 0
    for step in saving.steps:
        if step.value is not None:
            size += len(step.value)
    return size
