"""The calls of `App` that register tasks: functions, chains and machines, with the app's defaults."""
# pyright: reportOverlappingOverload=false

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, TypeVar, Unpack, overload

from stepwell.app.task_defaults import TaskDefaults
from stepwell.app.worker_hook import name_of
from stepwell.durable.backend import Drift
from stepwell.durable.context import Context
from stepwell.durable.sync_context import SyncContext
from stepwell.errors import ConfigError, DuplicateTask, TaskNotFound
from stepwell.errors.text import nearest, quoted
from stepwell.flows.chain import Chain, Step
from stepwell.flows.chain_types import ChainOptions, MakeChain
from stepwell.flows.machine import Machine
from stepwell.jobs.batch_task import BatchTaskDecorator, check_batch, new_batch_task
from stepwell.jobs.callable_task import (
    Anything,
    Async,
    AsyncContextTask,
    AsyncTask,
    ContextFunction,
    LooseFunction,
    SyncContextFunction,
    SyncContextTask,
    SyncTask,
    TaskDecorator,
    check_function,
    new_task,
)
from stepwell.jobs.enqueue import JobStore
from stepwell.jobs.retired_task import RetiredTask
from stepwell.jobs.task import Task
from stepwell.postgres.callers.sessions import TransactionOption
from stepwell.values.admission import Fair, Limit
from stepwell.values.duration import Duration
from stepwell.values.policy import Keep
from stepwell.values.public_call import public_call
from stepwell.values.rate import Rate
from stepwell.values.retry import Retry
from stepwell.values.unique import OnConflict, Unique

P = ParamSpec("P")
R = TypeVar("R")
AnyTask = TypeVar("AnyTask", bound=Task[..., Any])


class TasksByName(dict[str, Task[..., Any]]):
    """The tasks of an app. To ask for one that it does not have is an error that names the nearest."""

    def __missing__(self, name: object) -> NoReturn:
        hint = nearest(name, self) if isinstance(name, str) else ""
        raise TaskNotFound(
            f"the app has no task {quoted(name)}{hint or ': import the module that defines it, or check the name'}"
        )


class TaskRegistry:
    """The part of `App` that registers tasks."""

    _tasks: TasksByName
    _job_store: JobStore
    _defaults: TaskDefaults

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The registered tasks by name."""
        return MappingProxyType(self._tasks)

    # The order matters: of several overloads that fit, type checkers take the first.
    @overload
    def task(self, fn: LooseFunction[Anything], /) -> SyncTask[..., Any]: ...
    @overload
    def task(self, fn: LooseFunction[Async[R]], /) -> AsyncTask[..., R]: ...
    @overload
    def task(self, fn: LooseFunction[R], /) -> SyncTask[..., R]: ...
    @overload
    def task(self, fn: ContextFunction[P, Async[R]], /) -> AsyncContextTask[P, R]: ...
    @overload
    def task(self, fn: Callable[P, Async[R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, fn: ContextFunction[P, R], /) -> SyncContextTask[P, R, Context]: ...
    @overload
    def task(self, fn: SyncContextFunction[P, R], /) -> SyncContextTask[P, R, SyncContext]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...
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
        transaction: TransactionOption = False,
        drift: Drift | None = None,
        unique: str | Literal[True] | Unique | None = None,
        on_conflict: OnConflict | None = None,
        limit: Limit | None = None,
        limits: Sequence[Limit] = (),
        rate: Rate | None = None,
        rates: Sequence[Rate] = (),
        fair: str | Fair | None = None,
        was: str | Sequence[str] = (),
        logs: bool | None = None,
        maintainer: str | None = None,
        runbook: str | None = None,
    ) -> TaskDecorator: ...
    @overload
    def task(
        self,
        *,
        batch: int,
        batch_wait: Duration | None = None,
        name: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        timeout_grace: Duration = "5s",
        keep: Keep | None = None,
        keep_failed: Keep | None = None,
        unique: str | Literal[True] | Unique | None = None,
        on_conflict: OnConflict | None = None,
        limit: Limit | None = None,
        limits: Sequence[Limit] = (),
        rate: Rate | None = None,
        rates: Sequence[Rate] = (),
        fair: str | Fair | None = None,
        was: str | Sequence[str] = (),
        maintainer: str | None = None,
        runbook: str | None = None,
    ) -> BatchTaskDecorator: ...
    @public_call("app.task")
    def task(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        batch: int | None = None,
        batch_wait: Duration | None = None,
        name: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        timeout_grace: Duration = "5s",
        keep: Keep | None = None,
        keep_failed: Keep | None = None,
        process: bool = False,
        transaction: TransactionOption = False,
        drift: Drift | None = None,
        unique: str | Literal[True] | Unique | None = None,
        on_conflict: OnConflict | None = None,
        limit: Limit | None = None,
        limits: Sequence[Limit] = (),
        rate: Rate | None = None,
        rates: Sequence[Rate] = (),
        fair: str | Fair | None = None,
        was: str | Sequence[str] = (),
        logs: bool | None = None,
        maintainer: str | None = None,
        runbook: str | None = None,
    ) -> Any:
        """Register a function as a task, under its own name unless `name` is given.

        A coroutine function runs on the worker's event loop, a plain function in a thread, or with `process` in a
        process that is killed when its time is up. After `timeout` a run is asked to stop; a run that has not stopped
        after `timeout_grace` more is abandoned. `keep` and `keep_failed` say how long finished jobs are kept. With
        `transaction=True`, `ctx.connection` is in a transaction that commits together with the job's completion, or not
        at all; with `transaction=Sessions`, a sessionmaker or async_sessionmaker of SQLAlchemy, `ctx.session` is.

        `unique`, `limit`, `rate` and `fair` are templates over the arguments, such as `"{user}"`: at most one job per
        key, at most so many at once or per second, keys that take turns. They hold over all workers.

        `was` names what the task was called before: workers run the jobs of these names, too, with this function. The
        keys of the task, the steps that spawn it, and a schedule without a name belong to the first of these names, so
        a rename does not change them.

        With `batch`, the function takes a list: up to so many jobs share a call. Each is enqueued with one element, and
        ends with its element of the list that the function returns, or fails if that is an exception. A batch that is
        not full starts `batch_wait` after its first job, by default 50 milliseconds.

        With `logs`, what a handler logs is kept with its job, for `stepwell jobs logs` and the dashboard: the newest
        thousand lines. `maintainer` says who looks after the task, and `runbook` where to read what to do when it
        fails; both are shown to people.

        Calling the task calls its function: `send_mail("a")` runs it here and enqueues nothing.
        """

        batching = check_batch(batch, batch_wait)
        if not isinstance(was, Sequence) or isinstance(was, bytes):
            raise ConfigError(f"was is {was!r}: give the name that the task had before, or a list of them")
        names_before = (was,) if isinstance(was, str) else tuple(was)

        def register(fn: Callable[..., Any]) -> Task[..., Any]:
            if isinstance(fn, Task):
                raise ConfigError(f"{fn.name!r} is already a task")
            fn = check_function(fn)
            task_name = name if name is not None else getattr(fn, "__name__", type(fn).__name__)
            make = new_task if batching is None else partial(new_batch_task, batching=batching)
            options = self._defaults.options(
                queue,
                priority,
                retry,
                timeout,
                timeout_grace,
                keep,
                keep_failed,
                drift,
                unique,
                on_conflict,
                limit,
                limits,
                rate,
                rates,
                fair,
                logs,
                maintainer,
                runbook,
                task=task_name,
                was=names_before,
                batch=batching is not None,
            )
            return self._register(
                make(self._job_store, fn, task_name, process=process, transaction=transaction, **options),
                names_before,
            )

        return register if fn is None else register(fn)

    if TYPE_CHECKING:
        chain: MakeChain
    else:

        @public_call("app.chain", ChainOptions)
        def chain(
            self,
            name: str,
            *steps: Callable[..., Any] | Step[..., Any],
            **options: Unpack[ChainOptions],
        ) -> Chain[..., Any]:
            """Register a chain of functions as a task. Each function gets what the previous one returned, and the job
            saves it in between.

            `Step(fn, retry=..., timeout=..., queue=...)` gives a function its own policy; with `transaction` or
            `process` it runs like a task with that option. A function may return `Next(value, after="1h")` to delay the
            next one, or `Done(value)` to end the chain. A job is enqueued with the arguments of the first function.
            `unique`, `limit`, `rate` and `fair` are for the job as a whole, with templates over those arguments.
            """
            module = sys._getframe(2).f_globals.get("__name__", "?")
            made = self._defaults.options(**options, task=name)
            return self._register(Chain(self._job_store, name, steps, module, **made))

    @public_call("app.machine", ChainOptions)
    def machine(self, name: str, **options: Unpack[ChainOptions]) -> Machine:
        """Register a state machine as a task. `@machine.state` adds its states. A job is enqueued with a state.

        `unique`, `limit`, `rate` and `fair` are for the job as a whole. Their templates read the fields of the state
        that the job begins with: `"{state.customer}"`.
        """
        return self._register(Machine(self._job_store, name, **self._defaults.options(**options, task=name)))

    @public_call("app.retire")
    def retire(self, *names: str, queue: str | None = None) -> None:
        """Drain the jobs of tasks that this code no longer has: `app.retire("old_name")`.

        A worker of this app claims the jobs of these names and ends them without running anything. They end as
        cancelled, so that nobody takes them for done: `retry` runs one again once there is a task of its name. The
        worker logs how many there were. Name the `queue` of these jobs if no other task of the app has it.
        """
        if not names:
            raise ConfigError("retire which task? Give its name: app.retire('old_name')")
        for name in names:
            self._register(RetiredTask(self._job_store, name, **self._defaults.options(queue, task=name)))

    def _register(self, task: AnyTask, was: Sequence[str] = ()) -> AnyTask:
        for name in (task.name, *was):
            if (known := self._tasks.get(name)) is not None:
                if known.retired and task.retired:
                    raise DuplicateTask(f"task {name!r} is retired twice: leave one app.retire out")
                if known.retired or task.retired:
                    other = (task if known.retired else known).fn
                    raise DuplicateTask(
                        f"task {name!r} is retired, and it is also {name_of(other)}: leave app.retire({name!r}) out, "
                        "or give the task another name"
                    )
                other = known.fn
                raise DuplicateTask(
                    f"two tasks are named {name!r}: {name_of(other)} and {name_of(task.fn)}: "
                    "give one another name with @app.task(name=...)"
                )
        if len({task.name, *was}) <= len(was):
            raise ConfigError(f"task {task.name!r} was {', '.join(map(repr, was))}: give each name once")
        aliases = [task.renamed(name) for name in was]
        for named in (task, *aliases):
            self._tasks[named.name] = named
        if isinstance(task, Chain) and task.uses_processes:
            Chain.made[task.module, task.name] = task
        return task
