"""The app: tasks by name, the database, and everything one can ask of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload
from uuid import UUID

from stepwell import queries
from stepwell.aside import aside
from stepwell.batches import batches
from stepwell.bridge import afetch_on, fetch_on
from stepwell.coalesce import Coalescer
from stepwell.context import Context
from stepwell.db import Database, afetch, fetch
from stepwell.duration import Duration, seconds
from stepwell.errors import BadArgs, ConfigError, DuplicateTask
from stepwell.handle import JobHandle, refuse_in_event_loop
from stepwell.migrate import DEFAULT_KEEPS
from stepwell.queries import NewJob
from stepwell.retry import Retry
from stepwell.task import Call, Task, TaskDecorator, check_name
from stepwell.trouble import is_refusal
from stepwell.waiter import Waiter

P = ParamSpec("P")
R = TypeVar("R")

Keep = Duration | Literal["forever"]
"""How long a finished job is kept: a length of time, 0 (not at all) or "forever"."""

_CHUNK = 5000


class App:
    """Tasks, and the Postgres their jobs live in.

    The database is a URL, `"embedded"` (a Postgres of its own in ./.stepwell, for development), `"embedded:PATH"`, or
    None for what the environment variable STEPWELL_DATABASE_URL says. Connections are opened when they are needed;
    `with app:` or `async with app:` checks the database at once and closes them at the end.
    """

    def __init__(
        self,
        database: str | None = None,
        *,
        queue: str = "default",
        retry: Retry | None = None,
        timeout: Duration | None = None,
        keep: Keep = DEFAULT_KEEPS[0],
        keep_failed: Keep = DEFAULT_KEEPS[1],
        max_args_size: int = 1024 * 1024,
        max_result_size: int = 1024 * 1024,
        pool_size: int = 10,
    ) -> None:
        self.queue = check_name(queue, "queue")
        self.max_args_size = _positive(max_args_size, "max_args_size")
        self.max_result_size = _positive(max_result_size, "max_result_size")
        self.database = Database(database, pool_size=_positive(pool_size, "pool_size"))
        self._retry = _check_retry(retry) or Retry()
        self._timeout = _timeout(timeout)
        self._keep = _keep(keep, "keep")
        self._keep_failed = _keep(keep_failed, "keep_failed")
        self._tasks: dict[str, Task[..., Any]] = {}
        self._waiter = Waiter(self.database)
        self._coalescers: dict[asyncio.AbstractEventLoop, Coalescer[NewJob, UUID]] = {}

    @property
    def dsn(self) -> str:
        """The connection string of the database; an embedded Postgres is started and migrated for it."""
        dsn = self.database.dsn
        if self.database.is_embedded:
            self.database.ensure_ready()
        return dsn

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The registered tasks by name."""
        return MappingProxyType(self._tasks)

    def __enter__(self) -> Self:
        self.database.ensure_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await aside(self.database.ensure_ready)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def close(self) -> None:
        """Close what sync code opened. The app can be used again: it opens what it needs."""
        self._waiter.close()
        self.database.close()

    async def aclose(self) -> None:
        """Close what this event loop opened, and the rest."""
        await aside(self._waiter.close)
        await self.database.aclose()

    @overload
    def task(self, fn: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        timeout_grace: Duration = "5s",
        keep: Keep | None = None,
        keep_failed: Keep | None = None,
        process: bool = False,
        transaction: bool = False,
    ) -> TaskDecorator: ...
    def task(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        timeout_grace: Duration = "5s",
        keep: Keep | None = None,
        keep_failed: Keep | None = None,
        process: bool = False,
        transaction: bool = False,
    ) -> Any:
        """Register a function as a task, under its own name unless `name` says otherwise.

        A coroutine function runs on the worker's event loop, a plain one in a thread, with `process` in a process that
        is killed when its time is up. After `timeout` a run is asked to stop, after `timeout_grace` more it is given
        up. `keep` and `keep_failed` say how long finished jobs are kept. With `transaction`, `ctx.connection` is in a
        transaction that commits together with the job's completion, or not at all.
        """

        def register(fn: Callable[..., Any]) -> Task[..., Any]:
            if isinstance(fn, Task):
                raise ConfigError(f"{fn.name!r} is a task already")
            if not callable(fn):
                raise ConfigError(f"app.task takes a function, not {fn!r}; options go by name")
            task = Task[..., Any](
                self,
                fn,
                name=name if name is not None else getattr(fn, "__name__", type(fn).__name__),
                queue=queue if queue is not None else self.queue,
                priority=priority,
                retry=_check_retry(retry) or self._retry,
                timeout=self._timeout if timeout is None else _timeout(timeout),
                timeout_grace=seconds(timeout_grace, "timeout_grace"),
                keep=self._keep if keep is None else _keep(keep, "keep"),
                keep_failed=self._keep_failed if keep_failed is None else _keep(keep_failed, "keep_failed"),
                process=process,
                transaction=transaction,
            )
            if task.name in self._tasks:
                other = self._tasks[task.name].fn
                raise DuplicateTask(
                    f"two tasks are named {task.name!r}: {_place(other)} and {_place(fn)}: "
                    "give one another name with @app.task(name=...)"
                )
            self._tasks[task.name] = task
            return task

        return register if fn is None else register(fn)

    def job(self, job_id: UUID | str) -> JobHandle[Any]:
        """A handle to a job whose id is known. Its result comes as plain JSON values."""
        try:
            known = job_id if isinstance(job_id, UUID) else UUID(job_id)
        except (ValueError, AttributeError, TypeError):
            raise ConfigError(f"{job_id!r} is not a job's id: give a uuid") from None
        return JobHandle(known, self.database, self._waiter)

    def enqueue_many(self, calls: Iterable[Call[Any]], *, connection: object | None = None) -> list[JobHandle[Any]]:
        """Put calls of any tasks in, all or none: `app.enqueue_many([add.call(1, 2), greet.call("Ada")])`."""
        return self.put(_check_calls(calls), connection)

    async def aenqueue_many(
        self, calls: Iterable[Call[Any]], *, connection: object | None = None
    ) -> list[JobHandle[Any]]:
        """The same as `enqueue_many`, for async code."""
        return await self.aput(_check_calls(calls), connection)

    def pause(self, queue: str) -> None:
        """Claim nothing more from a queue until it is resumed; what runs goes on."""
        refuse_in_event_loop("pause", "apause")
        self.database.fetch(queries.pause(check_name(queue, "queue")))

    async def apause(self, queue: str) -> None:
        """The same as `pause`, for async code."""
        await self.database.afetch(queries.pause(check_name(queue, "queue")))

    def resume(self, queue: str) -> None:
        """Claim from a paused queue again."""
        refuse_in_event_loop("resume", "aresume")
        self.database.fetch(queries.resume(check_name(queue, "queue")))

    async def aresume(self, queue: str) -> None:
        """The same as `resume`, for async code."""
        await self.database.afetch(queries.resume(check_name(queue, "queue")))

    def put(self, calls: list[Call[Any]], connection: object | None) -> list[JobHandle[Any]]:
        """Where tasks put their calls. For your own code there is `enqueue_many`."""
        refuse_in_event_loop("enqueue", "aenqueue")
        ids: list[UUID] = []
        if connection is not None:
            for chunk in _chunks(calls):
                ids += fetch_on(connection, queries.enqueue(chunk))[0]
        elif len(calls) == 1:
            ids = self.database.fetch(queries.enqueue([calls[0].job]))[0]
        elif calls:
            with self.database.connection() as own, own.transaction():
                for chunk in _chunks(calls):
                    ids += fetch(own, queries.enqueue(chunk))[0]
        return self._handles(calls, ids)

    async def aput(self, calls: list[Call[Any]], connection: object | None) -> list[JobHandle[Any]]:
        """The same as `put`, for async code. Single calls made side by side are sent together."""
        ids: list[UUID] = []
        if connection is not None:
            for chunk in _chunks(calls):
                ids += (await afetch_on(connection, queries.enqueue(chunk)))[0]
        elif len(calls) == 1:
            ids = [await self._coalescer().submit(calls[0].job)]
        elif calls:
            async with self.database.aconnection() as own, own.transaction():
                for chunk in _chunks(calls):
                    ids += (await afetch(own, queries.enqueue(chunk)))[0]
        return self._handles(calls, ids)

    def _handles(self, calls: list[Call[Any]], ids: list[UUID]) -> list[JobHandle[Any]]:
        return [
            JobHandle(job_id, self.database, self._waiter, call.task.codec)
            for call, job_id in zip(calls, ids, strict=True)
        ]

    def _coalescer(self) -> Coalescer[NewJob, UUID]:
        loop = asyncio.get_running_loop()
        if loop not in self._coalescers:
            for closed in [known for known in self._coalescers if known.is_closed()]:
                del self._coalescers[closed]

            async def send(jobs: list[NewJob]) -> Sequence[UUID]:
                return (await self.database.afetch(queries.enqueue(jobs)))[0]

            self._coalescers[loop] = Coalescer(send, undone=is_refusal, batches=_batches)
        return self._coalescers[loop]


def _check_calls(calls: Iterable[Call[Any]]) -> list[Call[Any]]:
    checked = list(calls)
    for call in checked:
        if not isinstance(call, Call):
            raise BadArgs(f"app.enqueue_many takes calls, as task.call(...) makes them, not {call!r}")
    return checked


def _check_retry(retry: Retry | None) -> Retry | None:
    if retry is not None and not isinstance(retry, Retry):
        raise ConfigError(f"retry is {retry!r}: give a Retry, such as Retry(max_attempts=5)")
    return retry


def _chunks(calls: list[Call[Any]]) -> Iterator[list[NewJob]]:
    return _batches([call.job for call in calls])


def _batches(jobs: list[NewJob]) -> Iterator[list[NewJob]]:
    return batches(jobs, _CHUNK, lambda job: len(job.args) + len(job.metadata or ""))


def _positive(number: int, what: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ConfigError(f"{what} is {number!r}: it must be a whole number of at least 1")
    return number


def _timeout(timeout: Duration | None) -> float | None:
    if timeout is None:
        return None
    limit = seconds(timeout, "timeout")
    if limit == 0:
        raise ConfigError("timeout is 0: leave it out for no timeout")
    return limit


def _keep(keep: Keep, what: str) -> float:
    if keep == "forever":
        return float("inf")
    try:
        return seconds(keep, what)
    except ConfigError as error:
        raise ConfigError(f'{error}, or "forever"') from None


def _place(fn: Callable[..., Any]) -> str:
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', repr(fn))}"
