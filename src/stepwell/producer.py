"""Put jobs in: alone, side by side, many at once, or in the caller's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from stepwell import queries
from stepwell.batches import batches
from stepwell.bridge import afetch_on, fetch_on
from stepwell.coalesce import Coalescer
from stepwell.db import Database, afetch, fetch
from stepwell.queries import NewJob
from stepwell.trouble import is_refusal

# Small enough that a chunk is on its way, whole, before the next is made, and that making one does not hold up an
# event loop for long.
_CHUNK = 1000
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
        """Put many in, all or none. While Postgres takes a chunk, `jobs` is asked for the next."""
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
        with (
            self._database.connection() as own,
            own.transaction(),
            ThreadPoolExecutor(1, thread_name_prefix="stepwell-put") as sender,
        ):
            under_way = sender.submit(fetch, own, queries.enqueue(first))
            ids: list[str] = []
            for chunk in _chain(second, chunks):
                query = queries.enqueue(chunk)
                ids += under_way.result()[0]
                under_way = sender.submit(fetch, own, query)
            return ids + under_way.result()[0]

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
        async with self._database.aconnection() as own, own.transaction():
            under_way = asyncio.create_task(afetch(own, queries.enqueue(first)))
            try:
                ids: list[str] = []
                for chunk in _chain(second, chunks):
                    query = queries.enqueue(chunk)
                    ids += (await under_way)[0]
                    under_way = asyncio.create_task(afetch(own, query))
                    await asyncio.sleep(0)  # so that it leaves before the next chunk is made
                return ids + (await under_way)[0]
            finally:
                under_way.cancel()
                await asyncio.wait([under_way])

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


def _chain(first: list[NewJob], rest: Iterator[list[NewJob]]) -> Iterator[list[NewJob]]:
    yield first
    yield from rest


def _size(job: NewJob) -> int:
    return len(job.args) + len(job.metadata or "")
