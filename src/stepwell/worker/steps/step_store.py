"""Where running jobs save their steps: side by side they share a round trip, as outcomes do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any, TypeVar

import psycopg

from stepwell.durable import effects
from stepwell.durable.journal import Lost
from stepwell.errors import BadValue, TooLarge
from stepwell.postgres import queries
from stepwell.postgres.batches import batches
from stepwell.postgres.coalesce import Coalescer
from stepwell.postgres.database import Database, afetch, fetch
from stepwell.postgres.errors import is_transient, own
from stepwell.postgres.queries import Move, Query, Saving, Spawning
from stepwell.telemetry.bus import EventBus
from stepwell.values.job import ClaimedJob
from stepwell.values.step import NewStep
from stepwell.worker.outcomes.locks import Locks
from stepwell.worker.steps.step_threads import StepThreads
from stepwell.worker.worker_connection import WorkerConnection
from stepwell.worker.write_observer import about_to_write

T = TypeVar("T")
Row = TypeVar("Row")
Item = TypeVar("Item", Saving, Spawning, Move)
Answer = TypeVar("Answer")

_MOST = 2000


class StepStore:
    """The steps of all jobs that a worker runs, on one connection."""

    def __init__(
        self,
        link: WorkerConnection,
        transactions: Database,
        max_value_size: int,
        threads: StepThreads,
        events: EventBus,
    ) -> None:
        self._link = link
        self._locks = Locks(link, events, "step")
        self.transactions = transactions
        self.max_value_size = max_value_size
        self.threads = threads
        self.loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._closed = False
        self.saves: Coalescer[Saving, datetime] = Coalescer(self._save, _undone, _by_size)
        self.spawns: Coalescer[Spawning, str] = Coalescer(self._spawn, _undone, _children)
        self.moves: Coalescer[Move, None] = Coalescer(self._advance, _undone, _moves)

    def of(self, job: ClaimedJob) -> JobSteps:
        """Those of one job."""
        return JobSteps(self, job)

    async def ask(self, query: Query[Row], *, waits_for_locks: bool = True) -> list[Row]:
        """Ask until it is answered, or the worker has ended. Unless it `waits_for_locks` it raises
        `LockNotAvailable`."""
        async with self._lock:
            try:
                rows = await self._link.insist(query, lambda: not self._closed, waits_for_locks=waits_for_locks)
            except psycopg.DataError as error:
                if isinstance(refused := own(error), TooLarge):
                    raise refused from None
                raise
        if rows is None:
            raise Lost
        return rows

    async def ask_bounded(self, query: Query[Row], job_ids: Sequence[str], *, with_family: bool) -> list[Row]:
        """Ask, and while these jobs are locked let others ask."""
        return await self.outlast(
            lambda: self._ask_if_free(query, job_ids, with_family=with_family), job_ids, with_family=with_family
        )

    async def outlast(
        self, write: Callable[[], Awaitable[T]], job_ids: Sequence[str], *, with_family: bool = False
    ) -> T:
        """Write; while that raises `_Locked`, write again when the jobs are free."""
        try:
            return await write()
        except _Locked:
            pass
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

    async def ask_apart(self, query: Query[Row]) -> list[Row]:
        """Ask what may be long in coming: on a connection of its own, for the others must not wait for it."""
        link = self._link.dedicated("settle")
        try:
            rows = await link.insist(query, lambda: not self._closed)
        finally:
            link.close()
        if rows is None:
            raise Lost
        return rows

    def close(self) -> None:
        """Save no more."""
        self._closed = True

    async def _find(self, job_ids: Iterable[str], *, with_family: bool) -> set[str] | None:
        async with self._lock:
            if self._closed:
                raise Lost
            return await self._locks.find(set(job_ids), with_family=with_family)

    async def _ask_if_free(self, query: Query[Row], job_ids: Sequence[str], *, with_family: bool) -> list[Row]:
        try:
            return await self.ask(queries.bounded(query, self._locks.patience), waits_for_locks=False)
        except psycopg.errors.LockNotAvailable:
            await self._find(job_ids, with_family=with_family)
            raise _Locked from None

    async def _without_locked(
        self, items: list[Item], write: Callable[[list[Item]], Awaitable[Sequence[Answer]]]
    ) -> Sequence[Answer | _Locked]:
        """Write a batch that met a lock once more, without the locked jobs, which are answered `_Locked`."""
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

    async def _save(self, savings: list[Saving]) -> Sequence[datetime | Lost | _Locked]:
        try:
            query = queries.save_steps(savings, self._locks.patience)
            refused, at = (await self.ask(query, waits_for_locks=False))[0]
        except psycopg.errors.LockNotAvailable:
            return await self._without_locked(savings, self._save)
        except TooLarge as error:
            raise _too_large([step for saving in savings for step in saving.steps], error) from None
        if not refused:
            return [at] * len(savings)
        lost = {str(job_id) for job_id in refused}
        if _two_runs(savings):
            return [(await self._save([saving]))[0] if saving.job_id in lost else at for saving in savings]
        return [Lost() if saving.job_id in lost else at for saving in savings]

    async def _spawn(self, children: list[Spawning]) -> Sequence[str | Lost | _Locked]:
        try:
            query = queries.bounded(queries.spawn(children), self._locks.patience)
            ids = (await self.ask(query, waits_for_locks=False))[0]
        except psycopg.errors.LockNotAvailable:
            return await self._without_locked(children, self._spawn)
        except TooLarge as error:
            raise BadValue(f"child {children[0].step.key!r}: {error}") from None
        return [Lost() if child_id is None else str(child_id) for child_id in ids]

    async def _advance(self, moves: list[Move]) -> Sequence[Lost | _Locked | None]:
        try:
            query = queries.bounded(queries.advance(moves), self._locks.patience)
            lost = {str(job_id) for job_id in (await self.ask(query, waits_for_locks=False))[0]}
        except psycopg.errors.LockNotAvailable:
            return await self._without_locked(moves, self._advance)
        except TooLarge as error:
            raise BadValue(f"what step {moves[0].cursor!r} is given: {error}") from None
        if lost and _two_runs(moves):
            return [(await self._advance([move]))[0] if move.job_id in lost else None for move in moves]
        return [Lost() if move.job_id in lost else None for move in moves]


class JobSteps(effects.Store):
    """The steps of one job, for its context."""

    __slots__ = ("_epoch", "_id", "_steps", "max_value_size")

    def __init__(self, steps: StepStore, job: ClaimedJob) -> None:
        self._steps = steps
        self._id = job.id
        self._epoch = job.epoch
        self.max_value_size = steps.max_value_size

    def save(self, steps: Sequence[NewStep]) -> Awaitable[datetime]:
        saving = Saving(self._id, self._epoch, steps)
        return self._steps.outlast(lambda: self._steps.saves.submit(saving), (self._id,))

    async def spawn(self, children: Sequence[effects.NewChild]) -> list[str]:
        spawnings = [Spawning(self._id, self._epoch, child.step, child.job) for child in children]

        async def write() -> list[str]:
            return await asyncio.gather(*(self._steps.spawns.submit(spawning) for spawning in spawnings))

        return await self._steps.outlast(write, (self._id,))

    async def advance(self, left: str | None, cursor: str, value: str, n: int) -> None:
        move = Move(self._id, self._epoch, left, cursor, value, n)
        await self._steps.outlast(lambda: self._steps.moves.submit(move), (self._id,))

    async def read_large(self, key: str) -> str:
        return (await self._steps.ask(queries.large_value(self._id, key)))[0]

    async def cancel(self, job_ids: list[str]) -> None:
        query = queries.cancel_branches(job_ids, "another branch came first")
        await self._steps.ask_bounded(query, job_ids, with_family=True)

    async def forget_waits(self, keys: list[str]) -> None:
        query = queries.forget_waits(self._id, self._epoch, keys)
        if not (await self._steps.ask_bounded(query, (self._id,), with_family=False))[0]:
            raise Lost

    async def was_saved(self, key: str) -> bool:
        # It waits for the connection whose commit is in doubt, as long as the server has not noticed that it is gone.
        saved = (await self._steps.ask_apart(queries.step_saved(self._id, self._epoch, key)))[0]
        if saved is None:
            raise Lost
        return saved

    def run_plain(self, call: Callable[[], T]) -> Awaitable[T]:
        return self._steps.threads.run(call)

    def save_in(self, connection: psycopg.Connection[Any], steps: Sequence[NewStep]) -> None:
        with _naming(steps):
            refused, _ = fetch(connection, queries.save_steps([Saving(self._id, self._epoch, steps)]))[0]
        if refused:
            raise Lost

    async def asave_in(self, connection: psycopg.AsyncConnection[Any], steps: Sequence[NewStep]) -> None:
        with _naming(steps):
            refused, _ = (await afetch(connection, queries.save_steps([Saving(self._id, self._epoch, steps)])))[0]
        if refused:
            raise Lost

    @contextmanager
    def transaction(self) -> Generator[psycopg.Connection[Any]]:
        with self._steps.transactions.connection() as connection:
            with connection.transaction():
                yield connection
                committed = about_to_write("transaction", "commit")
            committed(())

    @asynccontextmanager
    async def atransaction(self) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
        async with self._steps.transactions.aconnection() as connection:
            async with connection.transaction():
                yield connection
                committed = about_to_write("transaction", "commit")
            committed(())

    def run_async(self, ask: Callable[[], Awaitable[T]]) -> T:
        async def asked() -> T:
            return await ask()

        future: Future[T] = asyncio.run_coroutine_threadsafe(asked(), self._steps.loop)
        return future.result()

    def pause(self, seconds: float) -> None:
        self.run_async(lambda: asyncio.sleep(seconds))


class _Locked(Exception):
    """Somebody else has locked the job. To be written again when it is free."""


@contextmanager
def _naming(steps: Sequence[NewStep]) -> Generator[None]:
    """Within this, a value that the database refuses for its size is said with the step that it is of."""
    try:
        yield
    except psycopg.DataError as error:
        if isinstance(refused := own(error), TooLarge):
            raise _too_large(steps, refused) from None
        raise


def _too_large(steps: Sequence[NewStep], error: TooLarge) -> BadValue:
    largest = max(steps, key=lambda step: len(step.value or ""))
    return BadValue(f"step {largest.key!r} has a value {str(error).removeprefix('step ')}")


def _undone(error: Exception) -> bool:
    """Whether nothing of a batch can have been written: else it would have been tried again."""
    return isinstance(error, BadValue) or (isinstance(error, psycopg.Error) and not is_transient(error))


def _two_runs(items: Sequence[Saving] | Sequence[Move]) -> bool:
    """Whether a job is among them twice, by an earlier run and by the one that holds it: refusals name only the job."""
    runs = {(item.job_id, item.epoch) for item in items}
    return len(runs) > len({job_id for job_id, _ in runs})


def _by_size(savings: list[Saving]) -> Iterator[list[Saving]]:
    return batches(savings, _MOST, _size)


def _size(saving: Saving) -> int:
    size = 0
    for step in saving.steps:
        if step.value is not None:
            size += len(step.value)
    return size


def _children(children: list[Spawning]) -> Iterator[list[Spawning]]:
    return batches(children, _MOST, lambda child: len(child.job.args))


def _moves(moves: list[Move]) -> Iterator[list[Move]]:
    return batches(moves, _MOST, lambda move: len(move.input))
