"""Put jobs in: alone, side by side, many at once, or in the caller's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any, LiteralString

import psycopg

from stepwell import queries
from stepwell.batches import batches
from stepwell.bridge import afetch_on, fetch_on
from stepwell.coalesce import Coalescer
from stepwell.db import Database
from stepwell.queries import NewJob
from stepwell.trouble import is_refusal

# Small enough that Postgres is soon at work, and that making one does not hold up an event loop for long.
_CHUNK = 2000
_MOST_SIDE_BY_SIDE = 5000


class Producer:
    """Sends jobs to the database and returns their ids."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._coalescers: dict[asyncio.AbstractEventLoop, Coalescer[NewJob, str]] = {}

    def put(self, job: NewJob, connection: object | None) -> str:
        """Put one job in."""
        query = queries.enqueue([job])
        return (self._database.fetch(query) if connection is None else fetch_on(connection, query))[0][0]

    async def aput(self, job: NewJob, connection: object | None) -> str:
        """Put one job in. Those that are put in side by side are sent together."""
        if connection is None:
            return await self._coalescer().submit(job)
        return (await afetch_on(connection, queries.enqueue([job])))[0][0]

    def put_many(self, jobs: Iterable[NewJob], connection: object | None) -> list[str]:
        """Put many in, all or none. Chunks are sent without waiting, so that the next is made while one is taken."""
        if connection is not None:
            # The caller's transaction outlives a bad job: nothing is sent before all have been seen.
            chunks = list(_chunks(jobs))
            return [job_id for chunk in chunks for job_id in fetch_on(connection, queries.enqueue(chunk))[0]]
        chunks = _chunks(jobs)
        first, second = next(chunks, None), next(chunks, None)
        if first is None:
            return []
        if second is None:
            return self._database.fetch(queries.enqueue(first))[0]
        with self._database.explaining(), self._database.connection() as own, _pipeline(own), own.transaction():
            sent = [own.execute(*_statement(chunk)) for chunk in _chain(first, second, chunks)]
            return [job_id for cursor in sent for (ids,) in cursor for job_id in ids]

    async def aput_many(self, jobs: Iterable[NewJob], connection: object | None) -> list[str]:
        """The same as `put_many`, for async code."""
        if connection is not None:
            chunks = list(_chunks(jobs))
            return [job_id for chunk in chunks for job_id in (await afetch_on(connection, queries.enqueue(chunk)))[0]]
        chunks = _chunks(jobs)
        first, second = next(chunks, None), next(chunks, None)
        if first is None:
            return []
        if second is None:
            return (await self._database.afetch(queries.enqueue(first)))[0]
        with self._database.explaining():
            async with self._database.aconnection() as own, _apipeline(own), own.transaction():
                sent = [await own.execute(*_statement(chunk)) for chunk in _chain(first, second, chunks)]
                return [job_id for cursor in sent async for (ids,) in cursor for job_id in ids]

    def _coalescer(self) -> Coalescer[NewJob, str]:
        loop = asyncio.get_running_loop()
        if loop not in self._coalescers:
            for closed in [known for known in self._coalescers if known.is_closed()]:
                del self._coalescers[closed]

            async def send(jobs: list[NewJob]) -> Sequence[str]:
                return (await self._database.afetch(queries.enqueue(jobs)))[0]

            self._coalescers[loop] = Coalescer(
                send, undone=is_refusal, batches=lambda jobs: batches(jobs, _MOST_SIDE_BY_SIDE, _size)
            )
        return self._coalescers[loop]


def _chunks(jobs: Iterable[NewJob]) -> Iterator[list[NewJob]]:
    return batches(jobs, _CHUNK, _size)


def _chain(first: list[NewJob], second: list[NewJob], rest: Iterator[list[NewJob]]) -> Iterator[list[NewJob]]:
    yield first
    yield second
    yield from rest


def _statement(jobs: list[NewJob]) -> tuple[LiteralString, Sequence[Any]]:
    query = queries.enqueue(jobs)
    return query.text, query.params


def _pipeline(connection: psycopg.Connection[Any]) -> AbstractContextManager[Any]:
    # Not with a libpq before 14: then each chunk waits for the one before.
    return connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext()


def _apipeline(connection: psycopg.AsyncConnection[Any]) -> AbstractAsyncContextManager[Any]:
    return connection.pipeline() if psycopg.AsyncPipeline.is_supported() else nullcontext()


def _size(job: NewJob) -> int:
    return len(job.args) + len(job.metadata or "")
