"""Enqueue calls of tasks: one, concurrent ones together, many at once, or in the caller's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from stepwell.errors import BadArgs, ConfigError, JobExists, TooLarge
from stepwell.jobs.codec import Codec
from stepwell.jobs.handle import JobHandle
from stepwell.jobs.waiter import Waiter
from stepwell.postgres import queries
from stepwell.postgres.callers_connection import afetch_on, fetch_on
from stepwell.postgres.coalesce import Coalescer, batches
from stepwell.postgres.database import Database
from stepwell.postgres.errors import is_refusal
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.jobs import Enqueued
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.values.job import NewJob

if TYPE_CHECKING:
    from stepwell.jobs.enqueuer import Call
    from stepwell.jobs.task import Task

# Small enough that Postgres starts early and that encoding one batch does not block an event loop for long.
_BATCH = 2000
_MOST_TOGETHER = 5000
_MOST_UNIQUE = 50_000


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
        self._coalescers: dict[asyncio.AbstractEventLoop, Coalescer[NewJob, tuple[str, bool]]] = {}

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
        query = _query([call.job])
        with self._naming_the_job(call.task.codec):
            rows = self.database.fetch(query) if connection is None else fetch_on(connection, query)
        return self._handles(rows, [call])[0]

    async def aenqueue(self, call: Call[Any], connection: object | None) -> JobHandle[Any]:
        """Enqueue one call. Concurrent calls are sent together."""
        if connection is None:
            # The call may wait behind another that gets no answer, so this wait needs a limit too.
            async with self.database.alimited():
                with self._naming_the_job(call.task.codec):
                    job_id, inserted = await self._coalescer().submit(call.job)
            return self._handle(job_id, call, inserted=inserted)
        with self._naming_the_job(call.task.codec):
            rows = await afetch_on(connection, _query([call.job]))
        return self._handles(rows, [call])[0]

    def enqueue_many(self, calls: Iterable[Call[Any]], connection: object | None) -> list[JobHandle[Any]]:
        """Enqueue many calls, all or none. Postgres works on one batch while `calls` yields the next."""
        refuse_in_event_loop("enqueue_many", "aenqueue_many")
        made: list[Call[Any]] = []
        with naming_the_item(made), self._naming_the_job():
            batched = _batch_queries(calls, made)
            if connection is not None:
                # The caller's transaction survives a bad item, so all items are checked before any is sent.
                rows = [row for query in _in_order(list(batched), made) for row in fetch_on(connection, query)]
            # The first two batches are made before a connection is opened: bad args need no database.
            elif len(first := list(islice(batched, 2))) == 2:
                rows = self.database.fetch_each(_all_in_order(first, batched, made))
            else:
                rows = [row for query in first for row in self.database.fetch(query)]
        return self._handles(rows, made)

    async def aenqueue_many(self, calls: Iterable[Call[Any]], connection: object | None) -> list[JobHandle[Any]]:
        made: list[Call[Any]] = []
        with naming_the_item(made), self._naming_the_job():
            batched = _batch_queries(calls, made)
            if connection is not None:
                rows = [row for query in _in_order(list(batched), made) for row in await afetch_on(connection, query)]
            elif len(first := list(islice(batched, 2))) == 2:
                rows = await self.database.afetch_each(_all_in_order(first, batched, made))
            else:
                rows = [row for query in first for row in await self.database.afetch(query)]
        return self._handles(rows, made)

    def _handles(self, rows: Sequence[Enqueued], calls: list[Call[Any]]) -> list[JobHandle[Any]]:
        ids = chain.from_iterable(row.ids for row in rows)
        if all(row.inserted is None for row in rows):
            return [JobHandle(job_id, self, call.task.codec) for job_id, call in zip(ids, calls, strict=True)]
        inserted = chain.from_iterable(_inserted(row) for row in rows)
        return [
            self._handle(job_id, call, inserted=new) for job_id, new, call in zip(ids, inserted, calls, strict=True)
        ]

    def _handle(self, job_id: str, call: Call[Any], *, inserted: bool) -> JobHandle[Any]:
        unique = call.job.unique
        # A job that has a key of a wider scope may be of another task.
        known = inserted or unique is None or unique.is_of_task
        return JobHandle(job_id, self, call.task.codec if known else None, inserted=inserted)

    @contextmanager
    def _naming_the_job(self, codec: Codec | None = None) -> Generator[None]:
        try:
            yield
        except JobExists as error:
            error.job = JobHandle(error.job_id, self, codec, inserted=False)
            raise

    def _coalescer(self) -> Coalescer[NewJob, tuple[str, bool]]:
        loop = asyncio.get_running_loop()
        if loop not in self._coalescers:
            for closed in [known for known in self._coalescers if known.is_closed()]:
                del self._coalescers[closed]

            async def send(jobs: list[NewJob]) -> Sequence[tuple[str, bool] | JobExists]:
                # Each caller has its own conflict: one must not refuse the jobs of the others.
                [row] = await self.database.afetch(_query(jobs, raises=False))
                if row.inserted is None:
                    return [(job_id, True) for job_id in row.ids]
                return [
                    (job_id, True) if inserted else _refusal(job, job_id) or (job_id, False)
                    for job, job_id, inserted in zip(jobs, row.ids, _inserted(row), strict=True)
                ]

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


def _batch_queries(calls: Iterable[Call[Any]], made: list[Call[Any]]) -> Iterator[Query[Enqueued]]:
    """Make a query for each batch of calls, and note each call in `made` as it is taken."""

    def jobs() -> Iterator[NewJob]:
        for call in calls:
            made.append(call)
            yield call.job

    return map(_query, _together(size_batches(jobs())))


def _together(batched: Iterator[list[NewJob]]) -> Iterator[list[NewJob]]:
    """Join batches with unique keys to few large ones, as each takes its keys in order."""
    for batch in batched:
        if any(job.unique is not None for job in batch):
            yield from batches(chain(batch, chain.from_iterable(batched)), _MOST_UNIQUE, _whole_size)
        else:
            yield batch


def _query(jobs: Sequence[NewJob], *, raises: bool = True) -> Query[Enqueued]:
    if all(job.unique is None for job in jobs):
        return queries.jobs.enqueue(jobs)
    return queries.jobs.enqueue_unique(jobs, raises=raises)


def _all_in_order(
    first: list[Query[Enqueued]], others: Iterator[Query[Enqueued]], made: list[Call[Any]]
) -> Iterable[Query[Enqueued]]:
    if all(call.job.unique is None for call in made):
        return chain(first, others)
    return _in_order([*first, *others], made)


def _in_order(batched: list[Query[Enqueued]], made: list[Call[Any]]) -> list[Query[Enqueued]]:
    """Hold the unique keys of several batches first. Each batch takes its keys in order, so that two batches with the
    same keys do not wait for each other. Of several batches in one transaction, only all keys together can do that."""
    keys = {call.job.unique.key for call in made if call.job.unique is not None} if len(batched) > 1 else None
    return [queries.jobs.hold_keys(list(keys)), *batched] if keys else batched


def _inserted(row: Enqueued) -> Iterable[bool]:
    return [True] * len(row.ids) if row.inserted is None else [digit == "1" for digit in row.inserted]


def _refusal(job: NewJob, job_id: str) -> JobExists | None:
    if job.unique is None or job.unique.conflict != "raise":
        return None
    return JobExists(f"job {job_id} has the unique key {job.unique.key}", job_id)


def size_batches(jobs: Iterable[NewJob]) -> Iterator[list[NewJob]]:
    """Divide jobs into batches for one query each."""
    return batches(jobs, _BATCH, _size)


def _size(job: NewJob) -> int:
    return len(job.args) + len(job.metadata or "")


def _whole_size(job: NewJob) -> int:
    return _size(job) + len(job.policy or "")
