"""A task with options for its jobs, and the ways to enqueue it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import msgspec

from stepwell.errors import BadArgs, ConfigError
from stepwell.jobs import task as tasks  # the module: it imports this one
from stepwell.jobs.enqueue_chunks import of_item
from stepwell.jobs.handle import JobHandle
from stepwell.jobs.metadata import encode_metadata
from stepwell.jobs.options import Options, check_priority, check_run_at
from stepwell.values.bounds import check_name
from stepwell.values.duration import Duration, seconds
from stepwell.values.job import NewJob
from stepwell.values.policy import Keep, check_timeout, stored_keep, stored_retry
from stepwell.values.public_call import public_call
from stepwell.values.retry import Retry, check_max_attempts
from stepwell.values.template import check_key
from stepwell.values.unique import Unique, unique_of

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

# The names of this method in other libraries.
_ELSEWHERE = ("delay", "apply_async", "send")


class Call(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """One call of a task, made by `task.call(...)` and not yet enqueued: for `enqueue_many` with options per item."""

    task: tasks.Task[..., R]
    job: NewJob


class Enqueuer(Generic[P, R]):
    """A task with options for its jobs. Made by `task.using(...)`; a further `using` adds options."""

    def __init__(self, task: tasks.Task[P, R], options: Options) -> None:
        self._task = task
        self._options = options

    @public_call("task.using")
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
        unique: str | Unique | None = None,
        connection: object | None = None,
    ) -> Enqueuer[P, R]:
        """Return the same task with these options for its jobs.

        `delay` and `run_at` (with a time zone) exclude each other. A job with a higher `priority` is claimed first.
        `retry`, `timeout`, `keep` and `keep_failed` are stored with the job and override the task's own, also in every
        step of a chain. `unique` is a key of the job, in place of the task's own; it is taken as it is, and is no
        template. With `connection`, a connection or session of your own, of psycopg, asyncpg, SQLAlchemy or Tortoise,
        or an alias of Django's DATABASES, the job exists if and only if your transaction commits.
        """
        changed: dict[str, Any] = {} if connection is None else {"connection": connection}
        policy: dict[str, Any] = {}
        if queue is not None:
            changed["queue"] = check_name(queue, "queue")
        if priority is not None:
            changed["priority"] = check_priority(priority)
        if delay is not None:
            changed["delay"] = seconds(delay, "delay")
        if run_at is not None:
            changed["run_at"] = check_run_at(run_at)
        if metadata is not None:
            changed["metadata"] = encode_metadata(metadata)
        if retry is not None:
            policy["retry"] = stored_retry(retry)
            changed["max_attempts"] = retry.max_attempts
        if max_attempts is not None:
            changed["max_attempts"] = check_max_attempts(max_attempts, "max_attempts")
        if timeout is not None:
            policy["timeout"] = check_timeout(timeout)
        if keep is not None:
            policy["keep"] = stored_keep(keep, "keep")
        if keep_failed is not None:
            policy["keep_failed"] = stored_keep(keep_failed, "keep_failed")
        if unique is not None:
            changed["unique"] = self._unique(unique)
        return Enqueuer(self._task, self._options.changed(policy, changed))

    def _unique(self, unique: str | Unique) -> Unique:
        declared = self._task.rules.unique
        if isinstance(unique, str) and declared is not None:
            unique = replace(declared, key=unique)
        found = unique_of(unique, None)
        if found is None or not isinstance(found.key, str):
            raise ConfigError(f"using(unique={unique!r}): give the job's key itself, as text")
        check_key(found.key, "unique")
        return found

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Hidden from type checkers: with it they would accept every wrong name.
            if name in _ELSEWHERE:
                task = self._task.name
                raise AttributeError(
                    f"a task has no {name!r}: enqueue it with {task}.enqueue(...), or {task}.using(delay=...)"
                    ".enqueue(...) with options; in async code await aenqueue(...)"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def task(self) -> tasks.Task[P, R]:
        """The task."""
        return self._task

    @property
    def options(self) -> Options:
        """The options that `using` was given."""
        return self._options

    @property
    def connection(self) -> object | None:
        """Your own connection, as given to `using`."""
        return self._options.connection

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Make one call with these arguments, checked and encoded, for `enqueue_many`."""
        if self.connection is not None:
            raise ConfigError(
                f"a call of {self._task.name!r} has no connection of its own: give using(connection=...) where it is "
                "enqueued"
            )
        return self._call(args, kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue one job. The job is durable when this returns, or with `connection` when you commit."""
        return self._task.job_store.enqueue(self._call(args, kwargs), self._options.connection)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """The same as `enqueue`, for async code. Concurrent calls share one round trip."""
        return await self._task.job_store.aenqueue(self._call(args, kwargs), self._options.connection)

    def enqueue_many(self, items: Iterable[Mapping[str, Any] | Call[R]]) -> list[JobHandle[R]]:
        """Enqueue many jobs, all or none. An item is a dict of arguments, or `task.using(...).call(...)`."""
        return self._task.job_store.enqueue_many(self.calls(self._listed(items)), self._options.connection)

    async def aenqueue_many(self, items: Iterable[Mapping[str, Any] | Call[R]]) -> list[JobHandle[R]]:
        """The same as `enqueue_many`, for async code."""
        return await self._task.job_store.aenqueue_many(self.calls(self._listed(items)), self._options.connection)

    def _listed(self, items: Iterable[Mapping[str, Any] | Call[R]]) -> list[Mapping[str, Any] | Call[R]]:
        if isinstance(items, Mapping):
            raise BadArgs(
                f"enqueue_many takes a list, with a dict of arguments for each job, not one dict: write "
                f"{self._task.name}.enqueue_many([{{...}}, {{...}}])"
            )
        return list(items)

    def calls(self, items: list[Mapping[str, Any] | Call[R]]) -> Iterator[Call[Any]]:
        """Make a call for each item, as `enqueue_many` takes them."""
        # Calls are made inside the transaction that sends them, so the items are a list: the caller's own iterator
        # would run its code in that transaction.
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
        most = task.job_store.max_args_size
        admission = None
        if task.rules:
            encoded, named = task.codec.encode_named_args(args, kwargs, most)
            admission = task.admission(named, options)
        else:
            encoded = task.codec.encode_args(args, kwargs, most)
            if options.unique is not None:
                admission = task.admission(None, options)
        return Call(
            task,
            NewJob(
                task.name,
                encoded,
                options.queue or task.queue,
                task.priority if options.priority is None else options.priority,
                options.delay,
                options.run_at,
                options.metadata,
                options.max_attempts,
                task.job_store.owner,
                options.stored_policy if admission is None else options.job_policy(admission),
                None if admission is None else admission.unique,
            ),
        )


def check_calls(calls: list[Call[Any]], where: str) -> Iterator[Call[Any]]:
    """Pass calls on. Raises `BadArgs`, which names `where` they were given, for anything else."""
    for index, call in enumerate(calls):
        if not isinstance(call, Call):
            raise BadArgs(f"item {index}: {where} takes calls, made by task.call(...), not {call!r}")
        yield call
