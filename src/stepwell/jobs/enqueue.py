"""Enqueue calls of tasks: one, concurrent ones together, many at once, or in the caller's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from stepwell.errors import BadArgs, ConfigError, TooLarge
from stepwell.jobs.codec import Codec
from stepwell.jobs.handle import JobHandle
from stepwell.jobs.waiter import Waiter
from stepwell.postgres import queries
from stepwell.postgres.callers_connection import afetch_on, fetch_on
from stepwell.postgres.coalesce import Coalescer, batches
from stepwell.postgres.database import Database
from stepwell.postgres.errors import is_refusal
from stepwell.postgres.queries import Query
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.values.job import NewJob

if TYPE_CHECKING:
    from stepwell.jobs.enqueuer import Call
    from stepwell.jobs.task import Task

# Small enough that Postgres starts early and that encoding one batch does not block an event loop for long.
_BATCH = 2000
_MOST_TOGETHER = 5000


class JobStore:
    """The jobs of one app: its tasks enqueue here, and handles read and change jobs through it."""

    def __init__(
        self,
        database: Database,
        tasks: Mapping[str, Task[..., Any]],
        *,
        max_args_size: int,
        owner: str | None,
        misfit_grace: float,
    ) -> None:
        self.database = database
        self.waiter = Waiter(database)
        self.tasks = tasks
        self.max_args_size = max_args_size
        self.owner = owner
        self.misfit_grace = misfit_grace
        self._coalescers: dict[asyncio.AbstractEventLoop, Coalescer[NewJob, str]] = {}

    def handle(self, job_id: str, codec: Codec | None = None) -> JobHandle[Any]:
        """Return a handle to a job. Without the codec of its task, its result is plain JSON values."""
        return JobHandle(job_id, self, codec)

    def task(self, name: str) -> Task[..., Any]:
        if name not in self.tasks:
            raise ConfigError(
                f"the job is of task {name!r}, which this app does not have, so the arguments cannot be checked: call "
                'this on the app that has the task, or use "stepwell jobs edit" and "stepwell jobs retry"'
            )
        return self.tasks[name]

    def enqueue(self, call: Call[Any], connection: object | None) -> JobHandle[Any]:
        refuse_in_event_loop("enqueue", "aenqueue")
        query = queries.jobs.enqueue([call.job])
        [[job_id]] = self.database.fetch(query) if connection is None else fetch_on(connection, query)
        return self.handle(job_id, call.task.codec)

    async def aenqueue(self, call: Call[Any], connection: object | None) -> JobHandle[Any]:
        """Enqueue one call. Concurrent calls are sent together."""
        if connection is None:
            # The call may wait behind another that gets no answer, so this wait needs a limit too.
            async with self.database.alimited():
                job_id = await self._coalescer().submit(call.job)
        else:
            [[job_id]] = await afetch_on(connection, queries.jobs.enqueue([call.job]))
        return self.handle(job_id, call.task.codec)

    def enqueue_many(self, calls: Iterable[Call[Any]], connection: object | None) -> list[JobHandle[Any]]:
        """Enqueue many calls, all or none. Postgres works on one batch while `calls` yields the next."""
        refuse_in_event_loop("enqueue_many", "aenqueue_many")
        made: list[Call[Any]] = []
        with naming_the_item(made):
            batched = _batch_queries(calls, made)
            if connection is not None:
                # The caller's transaction survives a bad item, so all items are checked before any is sent.
                rows = [row for query in list(batched) for row in fetch_on(connection, query)]
            # The first two batches are made before a connection is opened: bad args need no database.
            elif len(first := list(islice(batched, 2))) == 2:
                rows = self.database.fetch_each(chain(first, batched))
            else:
                rows = [row for query in first for row in self.database.fetch(query)]
        return self._handles(rows, made)

    async def aenqueue_many(self, calls: Iterable[Call[Any]], connection: object | None) -> list[JobHandle[Any]]:
        made: list[Call[Any]] = []
        with naming_the_item(made):
            batched = _batch_queries(calls, made)
            if connection is not None:
                rows = [row for query in list(batched) for row in await afetch_on(connection, query)]
            elif len(first := list(islice(batched, 2))) == 2:
                rows = await self.database.afetch_each(chain(first, batched))
            else:
                rows = [row for query in first for row in await self.database.afetch(query)]
        return self._handles(rows, made)

    def _handles(self, rows: Iterable[list[str]], calls: list[Call[Any]]) -> list[JobHandle[Any]]:
        ids = chain.from_iterable(rows)
        return [JobHandle(job_id, self, call.task.codec) for job_id, call in zip(ids, calls, strict=True)]

    def _coalescer(self) -> Coalescer[NewJob, str]:
        loop = asyncio.get_running_loop()
        if loop not in self._coalescers:
            for closed in [known for known in self._coalescers if known.is_closed()]:
                del self._coalescers[closed]

            async def send(jobs: list[NewJob]) -> Sequence[str]:
                return (await self.database.afetch(queries.jobs.enqueue(jobs)))[0]

            self._coalescers[loop] = Coalescer(
                send, nothing_written=is_refusal, batches=lambda jobs: batches(jobs, _MOST_TOGETHER, _size)
            )
        return self._coalescers[loop]


def of_item(index: int, error: BadArgs) -> BadArgs:
    return type(error)(f"item {index}: {error}")


@contextmanager
def naming_the_item(calls: list[Call[Any]]) -> Generator[None]:
    """Add the index of the item to the error for a value that the database finds too large. Several batches may be
    under way, and the server names only the column and its size: the first call with a value of that size is the bad
    item."""
    try:
        yield
    except TooLarge as error:
        for index, call in enumerate(calls):
            text = call.job.args if error.kind == "args" else call.job.metadata
            if text is not None and len(text) <= (error.size or 0) and len(text.encode()) == error.size:
                raise of_item(index, error) from error
        raise


def _batch_queries(calls: Iterable[Call[Any]], made: list[Call[Any]]) -> Iterator[Query[list[str]]]:
    """Make a query for each batch of calls, and note each call in `made` as it is taken."""

    def jobs() -> Iterator[NewJob]:
        for call in calls:
            made.append(call)
            yield call.job

    return map(queries.jobs.enqueue, size_batches(jobs()))


def size_batches(jobs: Iterable[NewJob]) -> Iterator[list[NewJob]]:
    """Divide jobs into batches for one query each."""
    return batches(jobs, _BATCH, _size)


def _size(job: NewJob) -> int:
    return len(job.args) + len(job.metadata or "")
