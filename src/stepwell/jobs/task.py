"""A task: a function, its name, its defaults, and the ways to enqueue it."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, ParamSpec, Protocol, Self, TypeVar

import msgspec

from stepwell.durable.context import Context
from stepwell.durable.job_context import Durability, JobContext
from stepwell.durable.journal import Drift
from stepwell.durable.sync_context import PlainContext, SyncContext
from stepwell.errors import BadArgs, ConfigError, StepwellError
from stepwell.jobs.codec import Codec, encode_metadata
from stepwell.jobs.handle import JobHandle
from stepwell.postgres.queries import NewJob
from stepwell.telemetry.bus import log
from stepwell.telemetry.steps import PolicyUnreadable
from stepwell.values.directives import Restart
from stepwell.values.duration import HUNDRED_YEARS, Duration, seconds
from stepwell.values.job import ClaimedJob
from stepwell.values.names import check_name
from stepwell.values.outcome import Outcome, Restarted, Succeeded
from stepwell.values.policy import JobPolicy, Keep, check_timeout, read_policy, stored_keep, stored_retry
from stepwell.values.retry import Retry, check_max_attempts

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Policies of jobs that are kept read. Each is a few hundred bytes.
_MOST_POLICIES = 1000

Kind = Literal["async", "thread", "process"]


class Call(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """One call of a task, made by `task.call(...)` and not yet enqueued: for `enqueue_many` with options per item."""

    task: Task[..., R]
    job: NewJob


class Sink(Protocol):
    """What a task needs of its app: somewhere to put jobs."""

    max_args_size: int
    owner: str | None
    misfit_grace: float

    def put(self, call: Call[Any], connection: object | None) -> JobHandle[Any]: ...

    async def aput(self, call: Call[Any], connection: object | None) -> JobHandle[Any]: ...

    def put_many(self, calls: Iterable[Call[Any]], connection: object | None) -> list[JobHandle[Any]]: ...

    async def aput_many(self, calls: Iterable[Call[Any]], connection: object | None) -> list[JobHandle[Any]]: ...


_ELSEWHERE = ("delay", "apply_async", "send")


@dataclass(frozen=True, slots=True)
class Options:
    """What `using` says of a job; None: what the task says."""

    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    run_at: datetime | None = None
    metadata: str | None = None
    max_attempts: int | None = None
    policy: JobPolicy = JobPolicy()  # noqa: RUF009 it is frozen
    stored_policy: str | None = None
    """The policy as JSON; None: it says nothing."""
    connection: object | None = None


class Enqueuer(Generic[P, R]):
    """A task with options for the jobs to come. Made by `task.using(...)`; `using` again adds to them."""

    def __init__(self, task: Task[P, R], options: Options) -> None:
        self._task = task
        self._options = options

    def using(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        max_attempts: int | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        keep: Keep | None = None,
        keep_failed: Keep | None = None,
        connection: object | None = None,
    ) -> Enqueuer[P, R]:
        """The same task with these options for its jobs.

        `delay` and `run_at` (with a time zone) exclude each other. A higher `priority` goes first. `retry`, `timeout`,
        `keep` and `keep_failed` are stored with the job, and go before what the task says, also in each step of a
        chain. With `connection`, a psycopg connection of your own, the job exists if and only if your transaction
        commits.
        """
        given = self._options
        if queue is not None:
            given = replace(given, queue=check_name(queue, "queue"))
        if priority is not None:
            given = replace(given, priority=check_priority(priority))
        if delay is not None:
            given = replace(given, delay=seconds(delay, "delay"))
        if run_at is not None:
            given = replace(given, run_at=_check_run_at(run_at))
        if metadata is not None:
            given = replace(given, metadata=encode_metadata(metadata))
        policy = given.policy
        if retry is not None:
            policy = msgspec.structs.replace(policy, retry=stored_retry(retry))
            given = replace(given, max_attempts=retry.max_attempts)
        if timeout is not None:
            policy = msgspec.structs.replace(policy, timeout=check_timeout(timeout))
        if keep is not None:
            policy = msgspec.structs.replace(policy, keep=stored_keep(keep, "keep"))
        if keep_failed is not None:
            policy = msgspec.structs.replace(policy, keep_failed=stored_keep(keep_failed, "keep_failed"))
        if policy is not given.policy:
            given = replace(given, policy=policy, stored_policy=policy.encoded())
        if max_attempts is not None:
            given = replace(given, max_attempts=check_max_attempts(max_attempts, "max_attempts"))
        if connection is not None:
            given = replace(given, connection=connection)
        if given.delay is not None and given.run_at is not None:
            raise ConfigError("delay and run_at exclude each other: give one")
        return Enqueuer(self._task, given)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # What other libraries call it. A type checker must not know of this, or it would flag no wrong name at all.
            if name in _ELSEWHERE:
                task = self._task.name
                raise AttributeError(
                    f"a task has no {name!r}: enqueue it with {task}.enqueue(...), or {task}.using(delay=...)"
                    ".enqueue(...) with options; in async code await aenqueue(...)"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def options(self) -> Options:
        """What `using` was given."""
        return self._options

    @property
    def connection(self) -> object | None:
        """The connection of your own that `using` was given."""
        return self._options.connection

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """One call with these arguments, checked and encoded, to be given to `enqueue_many`."""
        if self.connection is not None:
            raise ConfigError(
                f"a call of {self._task.name!r} has no connection of its own: say using(connection=...) where it is "
                "enqueued"
            )
        return self._call(args, kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Put one job in. Once this has returned it is durable (with `connection`: once you commit)."""
        return self._task.sink.put(self._call(args, kwargs), self._options.connection)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """The same as `enqueue`, for async code. Calls side by side share one round trip."""
        return await self._task.sink.aput(self._call(args, kwargs), self._options.connection)

    def enqueue_many(self, items: Iterable[Mapping[str, Any] | Call[R]]) -> list[JobHandle[R]]:
        """Put many jobs in, all or none. An item is a dict of arguments, or `task.using(...).call(...)`."""
        return self._task.sink.put_many(self.calls(self._listed(items)), self._options.connection)

    async def aenqueue_many(self, items: Iterable[Mapping[str, Any] | Call[R]]) -> list[JobHandle[R]]:
        """The same as `enqueue_many`, for async code."""
        return await self._task.sink.aput_many(self.calls(self._listed(items)), self._options.connection)

    def _listed(self, items: Iterable[Mapping[str, Any] | Call[R]]) -> list[Mapping[str, Any] | Call[R]]:
        if isinstance(items, Mapping):
            raise BadArgs(
                f"enqueue_many takes a list, with a dict of arguments for each job, not one dict: write "
                f"{self._task.name}.enqueue_many([{{...}}, {{...}}])"
            )
        return list(items)

    def calls(self, items: list[Mapping[str, Any] | Call[R]]) -> Iterator[Call[Any]]:
        """A call for each item, as `enqueue_many` takes them."""
        # Made while others are being sent, in a transaction: so out of a list, and not out of code of the caller's.
        for index, item in enumerate(items):
            if isinstance(item, Call):
                if item.task is not self._task:
                    raise BadArgs(
                        f"item {index}: a call of {item.task.name!r} among those of {self._task.name!r}: use "
                        "app.enqueue_many"
                    )
                yield item
            elif isinstance(item, Mapping):
                try:
                    call = self._call((), item)
                except BadArgs as error:
                    raise of_item(index, error) from None
                yield call
            else:
                raise BadArgs(
                    f"item {index}: give a dict of arguments or {self._task.name}.call(...), not {type(item).__name__}"
                )

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call[Any]:
        task, options = self._task, self._options
        return Call(
            task,
            NewJob(
                task.name,
                task.codec.encode_args(args, kwargs, task.sink.max_args_size),
                options.queue or task.queue,
                task.priority if options.priority is None else options.priority,
                options.delay,
                options.run_at,
                options.metadata,
                options.max_attempts,
                task.sink.owner,
                options.stored_policy,
            ),
        )


class Task(Enqueuer[P, R]):
    """Work that can be enqueued: a function that `@app.task` was given, which is `fn`, or a chain or a machine.

    The arguments `P` are those that a job is enqueued with, `R` is its result. What `@app.task` returns knows its
    function, too, and can be called as that: see `AsyncTask` and `SyncTask`.
    """

    def __init__(
        self,
        sink: Sink,
        fn: Callable[..., Any],
        *,
        name: str,
        queue: str,
        priority: int,
        retry: Retry,
        timeout: float | None,
        timeout_grace: float,
        keep: float,
        keep_failed: float,
        process: bool,
        transaction: bool,
        drift: Drift = "warn",
        codec: Codec | None = None,
    ) -> None:
        super().__init__(self, Options())
        self.sink = sink
        self.fn = fn
        self.name = check_name(name, "the task's name")
        self.queue = check_name(queue, "queue")
        self.priority = check_priority(priority)
        self.retry = retry
        self.timeout = timeout
        self.timeout_grace = timeout_grace
        self.keep = keep
        self.keep_failed = keep_failed
        self.transaction = transaction
        self.drift: Drift = drift
        self._by_policy: dict[str, Task[P, R]] = {}
        self.kind: Kind = _kind(name, fn, process=process)
        if transaction and process:
            raise ConfigError(f"task {name!r}: transaction=True and process=True exclude each other")
        self.codec = Codec(name, fn) if codec is None else codec
        if self.kind == "async" and self.codec.wants_sync_context:
            raise ConfigError(f"task {name!r} is 'async def': its parameter is 'ctx: Context'")
        if transaction and self.codec.context_parameter is None:
            raise ConfigError(
                f"task {name!r}: with transaction=True it needs a first parameter 'ctx: Context' for ctx.connection"
            )

    @property
    def queues(self) -> set[str]:
        """The queues that its jobs come to."""
        return {self.queue}

    @property
    def shape(self) -> str:
        """What its jobs may hold, by name."""
        return self.codec.shape()

    @property
    def signature(self) -> int:
        """A checksum of its name and shape, by which workers tell whether they have the same code for it."""
        return zlib.crc32(f"{self.name}({self.shape})".encode()) - 2**31

    @property
    def flow(self) -> Any:
        """The chain or machine that it is; None: it is a function."""
        return None

    @property
    def uses_processes(self) -> bool:
        """Whether its jobs, or steps of them, run in processes of their own."""
        return self.kind == "process"

    def outcome_of_result(self, result: Any, most: int) -> Outcome:
        """What becomes of a job whose handler has returned this."""
        if isinstance(result, Restart):
            return Restarted(self.codec.encode_args(result.args, result.kwargs, self.sink.max_args_size))
        return Succeeded(self.codec.encode_result(result, most))

    def with_failed_step(self, outcome: Outcome) -> Outcome:
        """An outcome with the step that failed, where this task is one step of a chain."""
        return outcome

    def for_job(self, job: ClaimedJob) -> Task[P, R]:
        """This task with the policy that a job has of its own. What cannot be read, as only SQL can have put it in, is
        left to the task."""
        if job.policy is None:
            return self
        known = self._by_policy.get(job.policy)
        if known is None:
            try:
                known = self._with_policy(read_policy(job.policy))
            except (ValueError, RecursionError, StepwellError) as error:
                log(PolicyUnreadable(job.id, self.name, job.queue, job.attempt, str(error)))
                return self
            if len(self._by_policy) >= _MOST_POLICIES:
                self._by_policy.clear()
            self._by_policy[job.policy] = known
        return known

    def _with_policy(self, policy: JobPolicy) -> Self:
        made = copy(self)
        made.retry = policy.applied_to(self.retry)
        made.timeout = self.timeout if policy.timeout is None else policy.timeout
        made.keep = self.keep if policy.keep is None else float(policy.keep)
        made.keep_failed = self.keep_failed if policy.keep_failed is None else float(policy.keep_failed)
        return made

    def context_for(
        self, job: ClaimedJob, report: Callable[[ClaimedJob, str], None], durability: Durability | None
    ) -> JobContext:
        """What its handler is given for a job."""
        kind = Context if self.kind == "async" else SyncContext if self.codec.wants_sync_context else PlainContext
        return kind(job, self.timeout, report, durability)

    def __repr__(self) -> str:
        return f"<Task {self.name}({self.codec.describe()})>"

    if not TYPE_CHECKING:  # to a type checker a chain or a machine is not callable

        def __call__(self, *_: object, **__: object) -> NoReturn:
            raise TypeError(
                f"{self.name!r} is not one function, and cannot be called: enqueue it with {self.name}.enqueue(...) or "
                f"await {self.name}.aenqueue(...)"
            )


def of_item(index: int, error: BadArgs) -> BadArgs:
    """The same error, which says which of many items is the bad one: its index, from 0."""
    return type(error)(f"item {index}: {error}")


def check_priority(priority: int) -> int:
    """A priority that a job can have."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not -32767 <= priority <= 32767:
        raise ConfigError(f"priority is {priority!r}: it must be a whole number between -32767 and 32767")
    return priority


def _check_run_at(run_at: datetime) -> datetime:
    if not isinstance(run_at, datetime):
        raise ConfigError(f"run_at is {run_at!r}: give a datetime with a time zone")
    if run_at.utcoffset() is None:
        raise ConfigError(f"run_at is {run_at!r}, without a time zone: say datetime.now(timezone.utc) or the like")
    # A day short of what the database allows, by its own clock.
    if not _EPOCH <= run_at <= datetime.now(UTC) + timedelta(seconds=HUNDRED_YEARS - 86400):
        raise ConfigError(f"run_at is in the year {run_at.year}: it must be between 1970 and 100 years from now")
    return run_at


def _kind(name: str, fn: Callable[..., Any], *, process: bool) -> Kind:
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise ConfigError(f"task {name!r} is a generator: return a list, or enqueue a job for each item")
    if inspect.iscoroutinefunction(fn):
        if process:
            raise ConfigError(f"task {name!r}: process=True is for plain functions: drop 'async', or the option")
        return "async"
    if process:
        if "<locals>" in getattr(fn, "__qualname__", "<locals>"):
            raise ConfigError(f"task {name!r}: with process=True the function must stand at the top of its module")
        return "process"
    return "thread"
