"""Where running jobs save their steps: side by side they share a round trip, as outcomes do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any, TypeVar

import psycopg

from stepwell import acts, queries
from stepwell.batches import batches
from stepwell.coalesce import Coalescer
from stepwell.db import Database, afetch, fetch
from stepwell.errors import BadValue, TooLarge
from stepwell.job import ClaimedJob
from stepwell.journal import Lost
from stepwell.queries import Move, Query, Saving, Spawning
from stepwell.step import NewStep
from stepwell.trouble import is_transient, own
from stepwell.worker.link import Link
from stepwell.worker.step_threads import StepThreads
from stepwell.worker.watch import about_to_write

T = TypeVar("T")
Row = TypeVar("Row")

_MOST = 2000


class StepStore:
    """The steps of all jobs that a worker runs, on one connection."""

    def __init__(self, link: Link, transactions: Database, max_value_size: int, threads: StepThreads) -> None:
        self._link = link
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

    async def ask(self, query: Query[Row]) -> list[Row]:
        """Ask until it is answered, or the worker has ended."""
        async with self._lock:
            try:
                rows = await self._link.insist(query, lambda: not self._closed)
            except psycopg.DataError as error:
                if isinstance(refused := own(error), TooLarge):
                    raise BadValue(str(refused)) from None
                raise
        if rows is None:
            raise Lost
        return rows

    async def ask_apart(self, query: Query[Row]) -> list[Row]:
        """Ask what may be long in coming: on a connection of its own, for the others must not wait for it."""
        link = self._link.another("settle")
        try:
            rows = await link.insist(query, lambda: not self._closed)
        finally:
            await link.close()
        if rows is None:
            raise Lost
        return rows

    def close(self) -> None:
        """Save no more."""
        self._closed = True

    async def _save(self, savings: list[Saving]) -> Sequence[datetime | Lost]:
        refused, at = (await self.ask(queries.save_steps(savings)))[0]
        if not refused:
            return [at] * len(savings)
        lost = {str(job_id) for job_id in refused}
        if _two_runs(savings):
            return [(await self._save([saving]))[0] if saving.job_id in lost else at for saving in savings]
        return [Lost() if saving.job_id in lost else at for saving in savings]

    async def _spawn(self, children: list[Spawning]) -> Sequence[str | Lost]:
        ids = (await self.ask(queries.spawn(children)))[0]
        return [Lost() if child_id is None else str(child_id) for child_id in ids]

    async def _advance(self, moves: list[Move]) -> Sequence[Lost | None]:
        lost = {str(job_id) for job_id in (await self.ask(queries.advance(moves)))[0]}
        if lost and _two_runs(moves):
            return [(await self._advance([move]))[0] if move.job_id in lost else None for move in moves]
        return [Lost() if move.job_id in lost else None for move in moves]


class JobSteps(acts.Store):
    """The steps of one job, for its context."""

    __slots__ = ("_epoch", "_id", "_steps", "max_value_size")

    def __init__(self, steps: StepStore, job: ClaimedJob) -> None:
        self._steps = steps
        self._id = job.id
        self._epoch = job.epoch
        self.max_value_size = steps.max_value_size

    def save(self, steps: Sequence[NewStep]) -> Awaitable[datetime]:
        return self._steps.saves.submit(Saving(self._id, self._epoch, steps))

    async def spawn(self, children: Sequence[acts.NewChild]) -> list[str]:
        submitted = [
            self._steps.spawns.submit(Spawning(self._id, self._epoch, child.step, child.job)) for child in children
        ]
        return await asyncio.gather(*submitted)

    async def advance(self, left: str | None, cursor: str, value: str, n: int) -> None:
        await self._steps.moves.submit(Move(self._id, self._epoch, left, cursor, value, n))

    async def read_large(self, key: str) -> str:
        return (await self._steps.ask(queries.large_value(self._id, key)))[0]

    async def cancel(self, job_ids: list[str]) -> None:
        await self._steps.ask(queries.cancel(job_ids, "another branch came first"))

    async def forget_waits(self, keys: list[str]) -> None:
        if not (await self._steps.ask(queries.forget_waits(self._id, self._epoch, keys)))[0]:
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
        refused, _ = fetch(connection, queries.save_steps([Saving(self._id, self._epoch, steps)]))[0]
        if refused:
            raise Lost

    async def asave_in(self, connection: psycopg.AsyncConnection[Any], steps: Sequence[NewStep]) -> None:
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
