"""The app: tasks by name, the database, and everything one can ask of jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload
from uuid import UUID

from stepwell import queries
from stepwell.aside import aside
from stepwell.context import Context
from stepwell.db import Database
from stepwell.duration import Duration, seconds
from stepwell.errors import BadArgs, ConfigError, DuplicateTask
from stepwell.handle import JobHandle, refuse_in_event_loop
from stepwell.migrate import DEFAULT_KEEPS
from stepwell.producer import Producer
from stepwell.queries import NewJob
from stepwell.retry import Retry
from stepwell.task import Call, Task, TaskDecorator, check_name
from stepwell.waiter import Waiter

P = ParamSpec("P")
R = TypeVar("R")

Keep = Duration | Literal["forever"]
"""How long a finished job is kept: a length of time, 0 (not at all) or "forever"."""


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
        self._producer = Producer(self.database)

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
        return JobHandle(str(known), self.database, self._waiter)

    def enqueue_many(self, calls: Iterable[Call[Any]], *, connection: object | None = None) -> list[JobHandle[Any]]:
        """Put calls of any tasks in, all or none: `app.enqueue_many([add.call(1, 2), greet.call("Ada")])`."""
        return self.put_many(_check_calls(list(calls)), connection)

    async def aenqueue_many(
        self, calls: Iterable[Call[Any]], *, connection: object | None = None
    ) -> list[JobHandle[Any]]:
        """The same as `enqueue_many`, for async code."""
        return await self.aput_many(_check_calls(list(calls)), connection)

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

    def put(self, call: Call[Any], connection: object | None) -> JobHandle[Any]:
        """Where tasks put their calls. For your own code there is `task.enqueue`."""
        refuse_in_event_loop("enqueue", "aenqueue")
        return self._handle(self._producer.put(call.job, connection), call)

    async def aput(self, call: Call[Any], connection: object | None) -> JobHandle[Any]:
        """The same as `put`, for async code."""
        return self._handle(await self._producer.aput(call.job, connection), call)

    def put_many(self, calls: Iterable[Call[Any]], connection: object | None) -> list[JobHandle[Any]]:
        """Where tasks put many calls, all or none. They are made as they are sent."""
        refuse_in_event_loop("enqueue_many", "aenqueue_many")
        made: list[Call[Any]] = []
        return self._handles(self._producer.put_many(_jobs(calls, made), connection), made)

    async def aput_many(self, calls: Iterable[Call[Any]], connection: object | None) -> list[JobHandle[Any]]:
        """The same as `put_many`, for async code."""
        made: list[Call[Any]] = []
        return self._handles(await self._producer.aput_many(_jobs(calls, made), connection), made)

    def _handle(self, job_id: str, call: Call[Any]) -> JobHandle[Any]:
        return JobHandle(job_id, self.database, self._waiter, call.task.codec)

    def _handles(self, ids: list[str], calls: list[Call[Any]]) -> list[JobHandle[Any]]:
        return [self._handle(job_id, call) for job_id, call in zip(ids, calls, strict=True)]


def _jobs(calls: Iterable[Call[Any]], made: list[Call[Any]]) -> Iterator[NewJob]:
    for call in calls:
        made.append(call)
        yield call.job


def _check_calls(calls: list[Call[Any]]) -> Iterator[Call[Any]]:
    for call in calls:
        if not isinstance(call, Call):
            raise BadArgs(f"app.enqueue_many takes calls, as task.call(...) makes them, not {call!r}")
        yield call


def _check_retry(retry: Retry | None) -> Retry | None:
    if retry is not None and not isinstance(retry, Retry):
        raise ConfigError(f"retry is {retry!r}: give a Retry, such as Retry(max_attempts=5)")
    return retry


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
