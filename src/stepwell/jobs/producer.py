"""Put jobs in: alone, side by side, many at once, or in the caller's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from stepwell.postgres import queries
from stepwell.postgres.batches import batches
from stepwell.postgres.callers_connection import afetch_on, fetch_on
from stepwell.postgres.coalesce import Coalescer
from stepwell.postgres.database import Database
from stepwell.postgres.errors import is_refusal
from stepwell.postgres.queries import NewJob, Query

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
            # It may have to wait until those before it have had no answer.
            async with self._database.alimited():
                return await self._coalescer().submit(job)
        return (await afetch_on(connection, queries.enqueue([job])))[0][0]

    def put_many(self, jobs: Iterable[NewJob], connection: object | None) -> list[str]:
        """Put many in, all or none. `jobs` is asked for more while Postgres takes what it has given."""
        chunks = _chunks(jobs)
        if connection is not None:
            # The caller's transaction outlives a bad job: nothing is sent before all have been seen.
            return [job_id for chunk in list(chunks) for job_id in fetch_on(connection, chunk)[0]]
        # The first are made before anything is opened: args that are bad are so without a database.
        first = list(islice(chunks, 2))
        if len(first) < 2:
            return self._database.fetch(first[0])[0] if first else []
        found = self._database.fetch_each(chain(first, chunks))
        return [job_id for ids in found for job_id in ids]

    async def aput_many(self, jobs: Iterable[NewJob], connection: object | None) -> list[str]:
        """The same as `put_many`, for async code."""
        chunks = _chunks(jobs)
        if connection is not None:
            return [job_id for chunk in list(chunks) for job_id in (await afetch_on(connection, chunk))[0]]
        first = list(islice(chunks, 2))
        if len(first) < 2:
            return (await self._database.afetch(first[0]))[0] if first else []
        found = await self._database.afetch_each(chain(first, chunks))
        return [job_id for ids in found for job_id in ids]

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


def _chunks(jobs: Iterable[NewJob]) -> Iterator[Query[list[str]]]:
    return map(queries.enqueue, batches(jobs, _CHUNK, _size))


def _size(job: NewJob) -> int:
    return len(job.args) + len(job.metadata or "")
