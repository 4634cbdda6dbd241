"""Enqueue calls of tasks: one, concurrent ones together, many at once, or in the caller's own transaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import msgspec

from stepwell.errors import ConfigError, JobExists
from stepwell.jobs.codec import Codec
from stepwell.jobs.enqueue_chunks import (
    at_once,
    chunk_queries,
    enqueue_query,
    in_order,
    job_size,
    may_be_out_of_order,
    naming_the_item,
)
from stepwell.jobs.handle import JobHandle
from stepwell.jobs.key_waits import KeyBusy, KeyWait, is_busy, tried
from stepwell.plugins.enqueue import Enqueue
from stepwell.plugins.loaded import LoadedPlugins
from stepwell.postgres.callers.on_connection import afetch_on, fetch_on
from stepwell.postgres.coalesce import Coalescer, batches
from stepwell.postgres.database_type import Database
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.jobs import Enqueued
from stepwell.postgres.threads import refuse_in_event_loop, running_loop
from stepwell.resources.declared import Resources
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.enqueue import JobEnqueued
from stepwell.values.headers import add_headers
from stepwell.values.job import NewJob
from stepwell.values.sealing import Sealer

if TYPE_CHECKING:
    from stepwell.jobs.enqueuer import Call
    from stepwell.jobs.task import Task

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
        resources: Resources,
        sealer: Sealer,
        plugins: LoadedPlugins,
        events: EventBus,
        start: Callable[[], None],
    ) -> None:
        from stepwell.jobs.waiter import Waiter  # it needs psycopg

        self.database = database
        self.waiter = Waiter(database)
        self.tasks = tasks
        self.max_args_size = max_args_size
        self.owner = owner
        self.misfit_grace = misfit_grace
        self.sealer = sealer
        self.resources = resources
        self._plugins = plugins
        self.events = events
        self._start = start
        self._coalescers: dict[tuple[asyncio.AbstractEventLoop, bool], Coalescer[NewJob, tuple[str, bool]]] = {}

    @property
    def is_observed(self) -> bool:
        """Whether plugins have something to do when jobs are enqueued."""
        return self._plugins.wants_enqueue

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
        if connection is None:
            refuse_in_event_loop("enqueue", "aenqueue")
        if not self.is_observed:
            return self._enqueue(call, connection)
        with self.observed([call], connection, many=False) as (sent, enqueue):
            handle = self._enqueue(sent[0], connection)
            enqueue.job_ids.append(str(handle.id))
        return handle

    def aenqueue(self, call: Call[Any], connection: object | None) -> Awaitable[JobHandle[Any]]:
        """Enqueue one call. Concurrent calls are sent together."""
        return (self._aenqueue_observed if self.is_observed else self._aenqueue)(call, connection)

    def enqueue_many(self, calls: Iterable[Call[Any]], connection: object | None) -> list[JobHandle[Any]]:
        """Enqueue many calls, all or none. Postgres works on one chunk while `calls` yields the next."""
        if connection is None:
            refuse_in_event_loop("enqueue_many", "aenqueue_many")
        if not self.is_observed:
            return self._enqueue_many(calls, connection)
        with self.observed(calls, connection) as (sent, enqueue):
            handles = self._enqueue_many(sent, connection)
            enqueue.job_ids += [str(handle.id) for handle in handles]
        return handles

    def aenqueue_many(self, calls: Iterable[Call[Any]], connection: object | None) -> Awaitable[list[JobHandle[Any]]]:
        return (self._aenqueue_many_observed if self.is_observed else self._aenqueue_many)(calls, connection)

    async def _aenqueue_observed(self, call: Call[Any], connection: object | None) -> JobHandle[Any]:
        with self.observed([call], connection, many=False) as (sent, enqueue):
            handle = await self._aenqueue(sent[0], connection)
            enqueue.job_ids.append(str(handle.id))
        return handle

    async def _aenqueue_many_observed(
        self, calls: Iterable[Call[Any]], connection: object | None
    ) -> list[JobHandle[Any]]:
        with self.observed(calls, connection) as (sent, enqueue):
            handles = await self._aenqueue_many(sent, connection)
            enqueue.job_ids += [str(handle.id) for handle in handles]
        return handles

    @contextmanager
    def observed(
        self, calls: Iterable[Call[Any]], connection: object | None, *, many: bool = True
    ) -> Generator[tuple[list[Call[Any]], Enqueue]]:
        """Let the plugins see an enqueue. Yields the calls with the headers that the plugins add."""
        self._start()
        sent = list(calls)
        tasks, queues = {call.job.task for call in sent}, {call.job.queue for call in sent}
        enqueue = Enqueue(
            tasks.pop() if len(tasks) == 1 else None,
            queues.pop() if len(queues) == 1 else None,
            len(sent),
            many=many,
            in_transaction=connection is not None,
        )
        with self._plugins.enqueuing(enqueue):
            if (headers := self._plugins.encoded_headers(enqueue)) is not None:
                sent = [with_headers(call, headers) for call in sent]
            yield sent, enqueue

    @contextmanager
    def observed_schedule(self, task: str, queue: str, connection: object | None) -> Generator[str | None]:
        """Let the plugins see a schedule that is made. Yields the headers for its runs, as JSON; None: it has none."""
        self._start()
        enqueue = Enqueue(task, queue, 0, many=False, in_transaction=connection is not None, scheduled=True)
        with self._plugins.enqueuing(enqueue):
            yield self._plugins.encoded_headers(enqueue)

    def _enqueue(self, call: Call[Any], connection: object | None) -> JobHandle[Any]:
        query = enqueue_query([call.job])
        with self._naming_the_job(call.task.codec):
            if connection is not None:
                rows = fetch_on(self.database, connection, query)
            elif call.job.unique is None:
                rows = self.database.fetch(query)
            else:
                rows = self._fetch_with_key(query)
        return self._handles(rows, [call], connection)[0]

    def _fetch_with_key(self, query: Query[Enqueued]) -> list[Enqueued]:
        wait = KeyWait(self.database.call_timeout)
        while True:
            try:
                return self.database.fetch_each(tried(query))
            except Exception as error:
                pause = wait.pause_after(error)
            time.sleep(pause)

    async def _afetch_with_key(self, query: Query[Enqueued]) -> list[Enqueued]:
        wait = KeyWait(self.database.call_timeout)
        while True:
            try:
                return await self.database.afetch_each(tried(query))
            except Exception as error:
                pause = wait.pause_after(error)
            await asyncio.sleep(pause)

    async def _aenqueue(self, call: Call[Any], connection: object | None) -> JobHandle[Any]:
        try:
            if connection is not None:
                rows = await afetch_on(self.database, connection, enqueue_query([call.job]))
            else:
                submit = self._coalescer(call.job.unique is not None).submit
                try:
                    job_id, inserted = await self.database.answer_of(submit, call.job)
                except KeyBusy:
                    rows = await self._afetch_with_key(enqueue_query([call.job]))
                else:
                    handle = self._handle(job_id, call, inserted=inserted)
                    if inserted and self.events.wanted(JobEnqueued):
                        self._tell([handle], [call], connection)
                    return handle
        except JobExists as error:
            # Not `_naming_the_job`, which takes as long as the rest of this function.
            error.job = JobHandle(error.job_id, self, call.task.codec, inserted=False)
            raise
        return self._handles(rows, [call], connection)[0]

    def _enqueue_many(self, calls: Iterable[Call[Any]], connection: object | None) -> list[JobHandle[Any]]:
        made: list[Call[Any]] = []
        with naming_the_item(made), self._naming_the_job():
            chunked = chunk_queries(calls, made)
            # The first two chunks are made before a connection is opened: bad args need no database.
            first = list(islice(chunked, 2))
            if connection is not None:
                # The caller's transaction survives a bad item, so all items are checked before any is sent.
                rows = [
                    row
                    for query in in_order(first, chunked, made)
                    for row in fetch_on(self.database, connection, query)
                ]
            elif len(first) < 2:
                rows = [row for query in first for row in self.database.fetch(query)]
            else:
                try:
                    rows = self.database.fetch_each(at_once(first, chunked, made))
                except Exception as error:
                    if not may_be_out_of_order(error, made):
                        raise
                    rows = self.database.fetch_each(in_order(first, chunked, made))
        return self._handles(rows, made, connection)

    async def _aenqueue_many(self, calls: Iterable[Call[Any]], connection: object | None) -> list[JobHandle[Any]]:
        made: list[Call[Any]] = []
        with naming_the_item(made), self._naming_the_job():
            chunked = chunk_queries(calls, made)
            first = list(islice(chunked, 2))
            if connection is not None:
                ordered = in_order(first, chunked, made)
                rows = [row for query in ordered for row in await afetch_on(self.database, connection, query)]
            elif len(first) < 2:
                rows = [row for query in first for row in await self.database.afetch(query)]
            else:
                try:
                    rows = await self.database.afetch_each(at_once(first, chunked, made))
                except Exception as error:
                    if not may_be_out_of_order(error, made):
                        raise
                    rows = await self.database.afetch_each(in_order(first, chunked, made))
        return self._handles(rows, made, connection)

    def _handles(
        self, rows: Sequence[Enqueued], calls: list[Call[Any]], connection: object | None
    ) -> list[JobHandle[Any]]:
        ids = chain.from_iterable(row.ids for row in rows)
        if all(row.inserted is None or "0" not in row.inserted for row in rows):
            handles: list[JobHandle[Any]] = [
                JobHandle(job_id, self, call.task.codec) for job_id, call in zip(ids, calls, strict=True)
            ]
        else:
            inserted = chain.from_iterable(_inserted(row) for row in rows)
            handles = [
                self._handle(job_id, call, inserted=new) for job_id, new, call in zip(ids, inserted, calls, strict=True)
            ]
        if self.events.wanted(JobEnqueued):
            self._tell(handles, calls, connection)
        return handles

    def _tell(self, handles: list[JobHandle[Any]], calls: list[Call[Any]], connection: object | None) -> None:
        for handle, call in zip(handles, calls, strict=True):
            if handle.inserted:
                job = call.job
                queue = job.queue or call.task.queue
                self.events.emit(JobEnqueued(str(handle.id), job.task, queue, 0, in_transaction=connection is not None))

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

    def _coalescer(self, keyed: bool) -> Coalescer[NewJob, tuple[str, bool]]:
        """Jobs with a unique key are sent apart: they may have to wait, and others must not wait for them."""
        loop = running_loop()
        known = self._coalescers.get((loop, keyed))
        if known is None:
            for closed in [key for key in self._coalescers if key[0].is_closed()]:
                del self._coalescers[closed]

            from stepwell.postgres.errors import is_refusal  # it needs psycopg

            known = self._coalescers[loop, keyed] = Coalescer(
                self._send_keyed if keyed else self._send,
                nothing_written=is_refusal,
                batches=lambda jobs: batches(jobs, _MOST_TOGETHER, job_size),
            )
        return known

    async def _send(self, jobs: list[NewJob]) -> list[tuple[str, bool]]:
        [row] = await self.database.afetch(enqueue_query(jobs))
        return [(job_id, True) for job_id in row.ids]

    async def _send_keyed(self, jobs: list[NewJob]) -> Sequence[tuple[str, bool] | JobExists | KeyBusy]:
        try:
            # Each caller has its own conflict: one must not refuse the jobs of the others.
            rows = await self.database.afetch_each(tried(enqueue_query(jobs, raises=False)))
        except Exception as error:
            if not is_busy(error):
                raise
            return [KeyBusy() for _ in jobs]
        return [
            (job_id, True) if inserted else _refusal(job, job_id) or (job_id, False)
            for job, job_id, inserted in zip(jobs, rows[-1].ids, _inserted(rows[-1]), strict=True)
        ]


def with_headers(call: Call[Any], headers: str) -> Call[Any]:
    job = msgspec.structs.replace(call.job, policy=add_headers(call.job.whole_policy, headers))
    return msgspec.structs.replace(call, job=job)


def _inserted(row: Enqueued) -> Iterable[bool]:
    return [True] * len(row.ids) if row.inserted is None else [digit == "1" for digit in row.inserted]


def _refusal(job: NewJob, job_id: str) -> JobExists | None:
    if job.unique is None or job.unique.on_conflict != "raise":
        return None
    return JobExists(f"job {job_id} has the unique key {job.unique.key}", job_id)
