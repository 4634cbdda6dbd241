"""The app: tasks by name, the database, and everything one can ask of jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload
from uuid import UUID

from stepwell.calendar.schedule import Catchup, Overlap, ScheduleInfo, Stale, When, check_stale
from stepwell.calendar.timing import parse_timing
from stepwell.durable.backend import Drift
from stepwell.durable.context import Context
from stepwell.durable.sync_context import SyncContext
from stepwell.errors import BadArgs, ConfigError, DuplicateTask, no_such_job
from stepwell.fleet import to_scope
from stepwell.flows.chain import Chain, Step
from stepwell.flows.chain_types import MakeChain
from stepwell.flows.machine import Machine
from stepwell.jobs.bulk import cancelling, change_jobs, check_count, count_jobs, list_jobs, retrying
from stepwell.jobs.callable_task import (
    Anything,
    AsyncContextTask,
    AsyncTask,
    SyncContextTask,
    SyncTask,
    TaskDecorator,
    new_task,
)
from stepwell.jobs.filter import JobFilters
from stepwell.jobs.handle import JobHandle, check_step, encode_event, refuse_in_event_loop, to_job_id
from stepwell.jobs.sink import JobSink
from stepwell.jobs.task import Call, Task
from stepwell.jobs.task_function import check_function
from stepwell.jobs.waiter import Waiter
from stepwell.postgres import queries
from stepwell.postgres.callers_connection import afetch_on, fetch_on
from stepwell.postgres.database import Database
from stepwell.postgres.migrate import DEFAULT_KEEPS
from stepwell.postgres.query_plan import arun, run
from stepwell.postgres.threads import aside
from stepwell.schedules.declare import Scheduler, new_declaration
from stepwell.schedules.handle import ScheduleHandle
from stepwell.values.duration import Duration, seconds
from stepwell.values.job import JobInfo
from stepwell.values.names import check_name
from stepwell.values.policy import Keep, check_keep, check_retry, check_timeout
from stepwell.values.retry import Retry
from stepwell.worker_hook import Hook, check_hook, name_of

P = ParamSpec("P")
R = TypeVar("R")
AnyTask = TypeVar("AnyTask", bound=Task[..., Any])
AnyHook = TypeVar("AnyHook", bound=Hook)


class App:
    """Tasks, and the Postgres their jobs live in.

    The database is a URL, `"embedded"` (a Postgres of its own in ./.stepwell, for development), `"embedded:PATH"`, or
    None for what the environment variable STEPWELL_DATABASE_URL says. Connections are opened when they are needed;
    `with app:` or `async with app:` checks the database at once and closes them at the end.

    `name` tells this app from other services on the same database. The jobs of an app that is given one belong to it:
    only workers of an app of that name run them. Without one, any worker that knows the task does, and schedules go by
    the module in which the app is made.

    When a worker starts, the schedules that no longer stand in the code are removed by `stale_schedules`:
    "remove_stale", once they have stood in no live worker's code for `schedule_grace`; "remove_all", at once, and those
    made at run time too; or "keep".

    `drift` says what happens when a saved step of a durable job is called with other arguments: "warn" takes its saved
    value, "fail" fails the attempt, "rerun" runs the step again.

    A job that has an argument which the worker's code does not know, or lacks one that it needs, was made for other
    code, as happens during a deploy. It waits for `misfit_grace` for a worker whose code takes it, and then fails; with
    0 it fails at once.

    A call raises `DatabaseTimeout` when it gets no connection, or no answer from the server, within `call_timeout`.
    With None it waits for as long as the server is silent. The limit is for silence: `enqueue_many` of a million jobs
    takes longer and is not cut off.
    """

    def __init__(
        self,
        database: str | None = None,
        *,
        name: str | None = None,
        queue: str = "default",
        retry: Retry | None = None,
        timeout: Duration | None = None,
        keep: Keep = DEFAULT_KEEPS[0],
        keep_failed: Keep = DEFAULT_KEEPS[1],
        max_args_size: int = 1024 * 1024,
        max_result_size: int = 1024 * 1024,
        pool_size: int = 10,
        stale_schedules: Stale = "remove_stale",
        schedule_grace: Duration = "10m",
        drift: Drift = "warn",
        misfit_grace: Duration = "1h",
        call_timeout: Duration | None = "10s",
    ) -> None:
        self.name = check_name(_module_of_caller() if name is None else name, "name")
        self.owner = None if name is None else self.name
        """To whom its jobs belong: the name that it was given; None: any worker that knows the task runs them."""
        self.queue = check_name(queue, "queue")
        self.max_result_size = check_count(max_result_size, "max_result_size")
        self.database = Database(
            database,
            pool_size=check_count(pool_size, "pool_size"),
            call_timeout=_call_timeout(call_timeout),
        )
        self._retry = check_retry(retry) or Retry()
        self._timeout = check_timeout(timeout)
        self._keep = check_keep(keep, "keep")
        self._keep_failed = check_keep(keep_failed, "keep_failed")
        self._drift: Drift = _check_drift(drift)
        self._tasks: dict[str, Task[..., Any]] = {}
        self.start_hooks: list[Hook] = []
        self.stop_hooks: list[Hook] = []
        self._waiter = Waiter(self.database)
        self._sink = JobSink(
            self.database,
            self._waiter,
            check_count(max_args_size, "max_args_size"),
            self.owner,
            seconds(misfit_grace, "misfit_grace"),
            self._tasks,
        )
        self.scheduler = Scheduler(
            self.name,
            self.database,
            check_stale(stale_schedules),
            seconds(schedule_grace, "schedule_grace"),
            named=name is not None,
        )

    @property
    def dsn(self) -> str:
        """The connection string of the database; an embedded Postgres is started and migrated for it."""
        dsn = self.database.dsn
        if self.database.is_embedded:
            self.database.ensure_ready()
        return dsn

    @property
    def url(self) -> str:
        """The database as a URL, `postgresql://user:password@host:port/database?...`, for other libraries.

        asyncpg takes it as it is, SQLAlchemy with a driver's name in it: `postgresql+psycopg://`. An embedded Postgres
        is started and migrated for it. Unlike `dsn`, it has none of the settings that Stepwell adds.
        """
        _ = self.dsn
        return self.database.url

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

    # In this order: what fits several of them is what the first says.
    @overload
    def task(self, fn: Callable[Concatenate[Anything, ...], Anything], /) -> SyncTask[..., Any]: ...
    @overload
    def task(  # pyright: ignore[reportOverlappingOverload]
        self, fn: Callable[Concatenate[Anything, ...], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[..., R]: ...
    @overload
    def task(  # pyright: ignore[reportOverlappingOverload]
        self, fn: Callable[Concatenate[Anything, ...], R], /
    ) -> SyncTask[..., R]: ...
    @overload
    def task(  # pyright: ignore[reportOverlappingOverload]
        self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncContextTask[P, R]: ...
    @overload
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, fn: Callable[Concatenate[Context, P], R], /) -> SyncContextTask[P, R, Context]: ...
    @overload
    def task(self, fn: Callable[Concatenate[SyncContext, P], R], /) -> SyncContextTask[P, R, SyncContext]: ...
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
        transaction: bool = False,
        drift: Drift | None = None,
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
        drift: Drift | None = None,
    ) -> Any:
        """Register a function as a task, under its own name unless `name` says otherwise.

        A coroutine function runs on the worker's event loop, a plain one in a thread, with `process` in a process that
        is killed when its time is up. After `timeout` a run is asked to stop, after `timeout_grace` more it is given
        up. `keep` and `keep_failed` say how long finished jobs are kept. With `transaction`, `ctx.connection` is in a
        transaction that commits together with the job's completion, or not at all.

        Called, the task is its function: `send_mail("a")` runs it here, and enqueues nothing.
        """

        def register(fn: Callable[..., Any]) -> Task[..., Any]:
            if isinstance(fn, Task):
                raise ConfigError(f"{fn.name!r} is a task already")
            fn = check_function(fn)
            task = new_task(
                self._sink,
                fn,
                name if name is not None else getattr(fn, "__name__", type(fn).__name__),
                queue=queue if queue is not None else self.queue,
                priority=priority,
                retry=check_retry(retry) or self._retry,
                timeout=self._timeout if timeout is None else check_timeout(timeout),
                timeout_grace=seconds(timeout_grace, "timeout_grace"),
                keep=self._keep if keep is None else check_keep(keep, "keep"),
                keep_failed=self._keep_failed if keep_failed is None else check_keep(keep_failed, "keep_failed"),
                process=process,
                transaction=transaction,
                drift=_check_drift(self._drift if drift is None else drift),
            )
            return self._register(task)

        return register if fn is None else register(fn)

    def on_worker_start(self, fn: AnyHook, /) -> AnyHook:
        """Have each worker of this app call a function before it claims its first job: to open a client that handlers
        share, say. Plain or `async def`, it takes no arguments and runs on the worker's event loop.

        They are called in order. If one fails, the worker does not start.
        """
        self.start_hooks.append(check_hook("on_worker_start", fn))
        return fn

    def on_worker_stop(self, fn: AnyHook, /) -> AnyHook:
        """Have each worker of this app call a function after its last handler has ended, or was abandoned. As with
        `on_worker_start`, but the last goes first, and each is called whatever became of the others.

        If the k-th start hook failed, only the stop hooks before the k-th are called: give each start hook its stop
        hook, in the same order. An `async def` that takes longer than 10 seconds is cancelled.
        """
        self.stop_hooks.append(check_hook("on_worker_stop", fn))
        return fn

    if TYPE_CHECKING:
        chain: MakeChain
    else:

        def chain(
            self,
            name: str,
            *steps: Callable[..., Any] | Step[..., Any],
            queue: str | None = None,
            priority: int = 0,
            retry: Retry | None = None,
            timeout: Duration | None = None,
            keep: Keep | None = None,
            keep_failed: Keep | None = None,
        ) -> Chain[..., Any]:
            """A task whose work is a chain of functions: what one returns is given to the next, and saved in between.

            `Step(fn, retry=..., timeout=..., queue=...)` gives one a policy of its own; with `transaction` or `process`
            it runs like a task with that option. A function may return `Next(value, after="1h")` to have the next one
            wait, or `Done(value)` to end the chain. A job is enqueued with the arguments of the first.
            """
            return self._register(
                Chain(
                    self._sink,
                    name,
                    steps,
                    sys._getframe(1).f_globals.get("__name__", "?"),
                    **self._flow_options(queue, priority, retry, timeout, keep, keep_failed),
                )
            )

    def machine(
        self,
        name: str,
        *,
        queue: str | None = None,
        priority: int = 0,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        keep: Keep | None = None,
        keep_failed: Keep | None = None,
    ) -> Machine:
        """A task whose work is a machine of states, which are added by `@machine.state`. A job is enqueued with a
        state."""
        return self._register(
            Machine(self._sink, name, **self._flow_options(queue, priority, retry, timeout, keep, keep_failed))
        )

    def _flow_options(
        self,
        queue: str | None,
        priority: int,
        retry: Retry | None,
        timeout: Duration | None,
        keep: Keep | None,
        keep_failed: Keep | None,
    ) -> dict[str, Any]:
        return {
            "queue": queue if queue is not None else self.queue,
            "priority": priority,
            "retry": check_retry(retry) or self._retry,
            "timeout": self._timeout if timeout is None else check_timeout(timeout),
            "timeout_grace": 5.0,
            "keep": self._keep if keep is None else check_keep(keep, "keep"),
            "keep_failed": self._keep_failed if keep_failed is None else check_keep(keep_failed, "keep_failed"),
        }

    def _register(self, task: AnyTask) -> AnyTask:
        if task.name in self._tasks:
            other = self._tasks[task.name].fn
            raise DuplicateTask(
                f"two tasks are named {task.name!r}: {name_of(other)} and {name_of(task.fn)}: "
                "give one another name with @app.task(name=...)"
            )
        self._tasks[task.name] = task
        if isinstance(task, Chain) and task.uses_processes:
            Chain.made[task.module, task.name] = task
        return task

    def job(self, job_id: JobInfo | UUID | str) -> JobHandle[Any]:
        """A handle to a job by its id, or as `jobs` lists it. Its result comes as plain JSON values."""
        return JobHandle(to_job_id(job_id), self.database, self._waiter, encoder=self._sink)

    def enqueue_many(self, calls: Iterable[Call[Any]], *, connection: object | None = None) -> list[JobHandle[Any]]:
        """Put calls of any tasks in, all or none: `app.enqueue_many([add.call(1, 2), greet.call("Ada")])`."""
        return self._sink.put_many(_check_calls(list(calls)), connection)

    async def aenqueue_many(
        self, calls: Iterable[Call[Any]], *, connection: object | None = None
    ) -> list[JobHandle[Any]]:
        """The same as `enqueue_many`, for async code."""
        return await self._sink.aput_many(_check_calls(list(calls)), connection)

    def emit(
        self,
        event: str,
        *,
        key: str | None = None,
        value: Any = None,
        keep: Duration = "30d",
        connection: object | None = None,
    ) -> None:
        """Emit an event: every job that waits for this name and key by `ctx.wait_for` goes on, and who begins to wait
        later finds it for as long as it is kept. With `connection`, if and only if your transaction commits."""
        refuse_in_event_loop("emit", "aemit")
        query = _emit(event, key, value, keep)
        self.database.fetch(query) if connection is None else fetch_on(connection, query)

    async def aemit(
        self,
        event: str,
        *,
        key: str | None = None,
        value: Any = None,
        keep: Duration = "30d",
        connection: object | None = None,
    ) -> None:
        """The same as `emit`, for async code."""
        query = _emit(event, key, value, keep)
        await (self.database.afetch(query) if connection is None else afetch_on(connection, query))

    @overload
    def fork(self, job: JobHandle[R], *, step: str) -> JobHandle[R]: ...
    @overload
    def fork(self, job: JobInfo | UUID | str, *, step: str) -> JobHandle[Any]: ...
    def fork(self, job: JobHandle[Any] | JobInfo | UUID | str, *, step: str) -> JobHandle[Any]:
        """A new job that begins with all that another, live or finished, had saved before a step; of a chain or
        machine, at that step."""
        refuse_in_event_loop("fork", "afork")
        handle = self._handle_of(job)
        return handle.same_task(_found(self.database.fetch(queries.fork(str(handle.id), check_step(step)))[0], handle))

    @overload
    async def afork(self, job: JobHandle[R], *, step: str) -> JobHandle[R]: ...
    @overload
    async def afork(self, job: JobInfo | UUID | str, *, step: str) -> JobHandle[Any]: ...
    async def afork(self, job: JobHandle[Any] | JobInfo | UUID | str, *, step: str) -> JobHandle[Any]:
        """The same as `fork`, for async code."""
        handle = self._handle_of(job)
        return handle.same_task(
            _found((await self.database.afetch(queries.fork(str(handle.id), check_step(step))))[0], handle)
        )

    def _handle_of(self, job: JobHandle[Any] | JobInfo | UUID | str) -> JobHandle[Any]:
        return job if isinstance(job, JobHandle) else self.job(job)

    def schedule(
        self,
        when: When,
        *,
        tz: str | None = None,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
        overlap: Overlap = "skip",
        catchup: Catchup = "once",
        jitter: Duration = 0,
        queue: str | None = None,
        priority: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        keep: Keep | None = None,
        keep_failed: Keep | None = None,
    ) -> Callable[[AnyTask], AnyTask]:
        """Enqueue a task by cron or at an interval: `@app.schedule("0 9 * * mon-fri", tz="Europe/Paris")`, above
        `@app.task`. A task may have several, each with a `name`; the first is named as the task.

        `when` is cron text of five fields, or six with seconds first, in the time zone `tz` (default UTC), or an
        interval such as "15m", whose ticks are counted from 1970. `overlap` says what a tick does while the run before
        has not ended, `catchup` what becomes of ticks that nobody was there to see; `jitter` puts each job off by up to
        that long. The other options are for its jobs, as in `using`. It takes effect when a worker starts.
        """

        parse_timing(when, tz)  # so that what is wrong is said here, also where no task is given

        def declare(task: AnyTask) -> AnyTask:
            own = self._own(task, "@app.schedule")
            options = own.using(
                queue=queue, priority=priority, metadata=metadata, retry=retry, timeout=timeout, keep=keep,
                keep_failed=keep_failed,
            )  # fmt: skip
            self.scheduler.declare(new_declaration(own, when, tz, args, name, overlap, catchup, jitter, options))
            return task

        return declare

    def schedule_task(
        self,
        task: Task[..., Any],
        when: When,
        *,
        tz: str | None = None,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
        overlap: Overlap = "skip",
        catchup: Catchup = "once",
        jitter: Duration = 0,
        queue: str | None = None,
        priority: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        keep: Keep | None = None,
        keep_failed: Keep | None = None,
        connection: object | None = None,
    ) -> ScheduleInfo:
        """Make a schedule at run time, or change the one of that name. Options as for `schedule`; with `connection`, a
        psycopg connection of your own, if and only if your transaction commits."""
        refuse_in_event_loop("schedule_task", "aschedule_task")
        task = self._own(task, "schedule_task")
        options = task.using(
            queue=queue, priority=priority, metadata=metadata, retry=retry, timeout=timeout, keep=keep,
            keep_failed=keep_failed,
        )  # fmt: skip
        made = new_declaration(task, when, tz, args, name, overlap, catchup, jitter, options)
        return run(self.scheduler.put(made), self.database, connection)

    async def aschedule_task(
        self,
        task: Task[..., Any],
        when: When,
        *,
        tz: str | None = None,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
        overlap: Overlap = "skip",
        catchup: Catchup = "once",
        jitter: Duration = 0,
        queue: str | None = None,
        priority: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        keep: Keep | None = None,
        keep_failed: Keep | None = None,
        connection: object | None = None,
    ) -> ScheduleInfo:
        """The same as `schedule_task`, for async code."""
        task = self._own(task, "aschedule_task")
        options = task.using(
            queue=queue, priority=priority, metadata=metadata, retry=retry, timeout=timeout, keep=keep,
            keep_failed=keep_failed,
        )  # fmt: skip
        made = new_declaration(task, when, tz, args, name, overlap, catchup, jitter, options)
        return await arun(self.scheduler.put(made), self.database, connection)

    def schedules(self) -> list[ScheduleInfo]:
        """The schedules of this app that are in the database, with their next and last runs."""
        refuse_in_event_loop("schedules", "aschedules")
        return self.database.fetch(queries.schedules(self.name))

    async def aschedules(self) -> list[ScheduleInfo]:
        """The same as `schedules`, for async code."""
        return await self.database.afetch(queries.schedules(self.name))

    def schedule_named(self, name: str) -> ScheduleHandle:
        """A handle to a schedule of this app: look at it, pause, resume, trigger or delete it."""
        return ScheduleHandle(check_name(name, "name"), self.name, self.database, self.job)

    def pause(
        self,
        queue: str | None = None,
        *,
        task: str | Task[..., Any] | None = None,
        worker: UUID | str | None = None,
        everything: bool = False,
    ) -> None:
        """Claim nothing more from a queue, of a task, by a worker, or anything at all, until it is resumed: in the
        whole database, whichever app's it is. What runs goes on. Workers obey within a second, those that start later
        too."""
        refuse_in_event_loop("pause", "apause")
        self.database.fetch(queries.pause(to_scope("pause", queue, task, worker, everything)))

    async def apause(
        self,
        queue: str | None = None,
        *,
        task: str | Task[..., Any] | None = None,
        worker: UUID | str | None = None,
        everything: bool = False,
    ) -> None:
        """The same as `pause`, for async code."""
        await self.database.afetch(queries.pause(to_scope("apause", queue, task, worker, everything)))

    def resume(
        self,
        queue: str | None = None,
        *,
        task: str | Task[..., Any] | None = None,
        worker: UUID | str | None = None,
        everything: bool = False,
    ) -> bool:
        """End a pause: exactly the one that was asked for, so a queue that was paused by itself stays so when
        everything is resumed. False: it was not paused."""
        refuse_in_event_loop("resume", "aresume")
        return self.database.fetch(queries.resume(to_scope("resume", queue, task, worker, everything)))[0]

    async def aresume(
        self,
        queue: str | None = None,
        *,
        task: str | Task[..., Any] | None = None,
        worker: UUID | str | None = None,
        everything: bool = False,
    ) -> bool:
        """The same as `resume`, for async code."""
        return (await self.database.afetch(queries.resume(to_scope("aresume", queue, task, worker, everything))))[0]

    def stop(
        self,
        queue: str | None = None,
        *,
        task: str | Task[..., Any] | None = None,
        worker: UUID | str | None = None,
        everything: bool = False,
    ) -> int:
        """Ask workers to drain and stop: those that claim from a queue, that know a task, one, or all, whichever app's
        they are. Those that start later are not meant. Returns how many were asked."""
        refuse_in_event_loop("stop", "astop")
        return self.database.fetch(queries.stop(to_scope("stop", queue, task, worker, everything)))[0]

    async def astop(
        self,
        queue: str | None = None,
        *,
        task: str | Task[..., Any] | None = None,
        worker: UUID | str | None = None,
        everything: bool = False,
    ) -> int:
        """The same as `stop`, for async code."""
        return (await self.database.afetch(queries.stop(to_scope("astop", queue, task, worker, everything))))[0]

    def jobs(
        self,
        *,
        limit: int = 100,
        before: JobInfo | UUID | str | None = None,
        timeout: Duration = "30s",
        **filters: Unpack[JobFilters],
    ) -> list[JobInfo]:
        """The newest jobs in the database that fit all the filters, live and finished, whichever app's they are; the
        newest first: `app.jobs(state="failed", task=send, newer_than="1d")`. They have neither `failures` nor `steps`:
        `app.job(id).info()` has.

        `before` is the last of the page before. If all jobs that there are must be looked at and that is not done
        within `timeout`, this raises `TimeoutError`.
        """
        refuse_in_event_loop("jobs", "ajobs")
        return run(list_jobs("jobs", filters, limit, before, timeout), self.database)

    async def ajobs(
        self,
        *,
        limit: int = 100,
        before: JobInfo | UUID | str | None = None,
        timeout: Duration = "30s",
        **filters: Unpack[JobFilters],
    ) -> list[JobInfo]:
        """The same as `jobs`, for async code."""
        return await arun(list_jobs("ajobs", filters, limit, before, timeout), self.database)

    def count_jobs(
        self, *, at_most: int | None = None, timeout: Duration = "30s", **filters: Unpack[JobFilters]
    ) -> int:
        """How many jobs fit all the filters. Postgres has to look at each of them: where there may be millions, say up
        to which number it matters with `at_most`. After `timeout` this raises `TimeoutError`."""
        refuse_in_event_loop("count_jobs", "acount_jobs")
        return run(count_jobs("count_jobs", filters, at_most, timeout), self.database)

    async def acount_jobs(
        self, *, at_most: int | None = None, timeout: Duration = "30s", **filters: Unpack[JobFilters]
    ) -> int:
        """The same as `count_jobs`, for async code."""
        return await arun(count_jobs("acount_jobs", filters, at_most, timeout), self.database)

    def retry_jobs(
        self,
        in_queue: str | None = None,
        /,
        *,
        everything: bool = False,
        from_start: bool = False,
        **filters: Unpack[JobFilters],
    ) -> int:
        """Run all failed jobs that fit the filters again, whichever app's they are, as `JobHandle.retry` does; with
        `state`, cancelled ones, or scheduled ones that wait for their next attempt. Returns how many.

        It works in batches, each of which is committed: if it is interrupted, call it again.
        """
        refuse_in_event_loop("retry_jobs", "aretry_jobs")
        change = retrying(from_start=from_start)
        return run(change_jobs("retry_jobs", change, in_queue, everything, filters), self.database)

    async def aretry_jobs(
        self,
        in_queue: str | None = None,
        /,
        *,
        everything: bool = False,
        from_start: bool = False,
        **filters: Unpack[JobFilters],
    ) -> int:
        """The same as `retry_jobs`, for async code."""
        change = retrying(from_start=from_start)
        return await arun(change_jobs("aretry_jobs", change, in_queue, everything, filters), self.database)

    def cancel_jobs(
        self,
        in_queue: str | None = None,
        /,
        *,
        everything: bool = False,
        reason: str | None = None,
        **filters: Unpack[JobFilters],
    ) -> int:
        """Cancel all live jobs that fit the filters, whichever app's they are; `worker` means those that it runs.
        Returns how many; those that run are told to stop.

        It works in batches, each of which is committed: if it is interrupted, call it again. A job that is enqueued
        meanwhile stays.
        """
        refuse_in_event_loop("cancel_jobs", "acancel_jobs")
        change = cancelling(reason)
        return run(change_jobs("cancel_jobs", change, in_queue, everything, filters), self.database)

    async def acancel_jobs(
        self,
        in_queue: str | None = None,
        /,
        *,
        everything: bool = False,
        reason: str | None = None,
        **filters: Unpack[JobFilters],
    ) -> int:
        """The same as `cancel_jobs`, for async code."""
        change = cancelling(reason)
        return await arun(change_jobs("acancel_jobs", change, in_queue, everything, filters), self.database)

    def _own(self, task: Any, who: str) -> Task[..., Any]:
        if not isinstance(task, Task):
            hint = ": it stands above @app.task" if who.startswith("@") else ""
            raise ConfigError(f"{who} takes a task, as @app.task makes it from a function, not {task!r}{hint}")
        if self._tasks.get(task.name) is not task:
            raise ConfigError(f"{who}: {task.name!r} is a task of another app")
        return task  # pyright: ignore[reportUnknownVariableType]


def _module_of_caller() -> str:
    """The module that makes the app. Of a program that is run its own name, so that `python -m shop.jobs` and a worker
    for shop.jobs:app are the same app."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    name = str(frame.f_globals.get("__name__", "app"))
    if name != "__main__":
        return name
    spec = frame.f_globals.get("__spec__")
    return str(spec.name).removesuffix(".__main__") if spec is not None else Path(sys.argv[0] or "app").stem or "app"


def _emit(event: str, key: str | None, value: Any, keep: Duration) -> queries.Query[int]:
    name = check_name(event, "event")
    about = None if key is None else check_name(key, "key")
    return queries.emit(name, about, encode_event(name, value), seconds(keep, "keep"))


def _found(forked: UUID | None, handle: JobHandle[Any]) -> str:
    if forked is None:
        raise no_such_job(handle.id)
    return str(forked)


def _check_drift(drift: Drift) -> Drift:
    if drift not in ("warn", "fail", "rerun"):
        raise ConfigError(f"drift is {drift!r}: it must be 'warn', 'fail' or 'rerun'")
    return drift


def _check_calls(calls: list[Call[Any]]) -> Iterator[Call[Any]]:
    for index, call in enumerate(calls):
        if not isinstance(call, Call):
            raise BadArgs(f"item {index}: app.enqueue_many takes calls, as task.call(...) makes them, not {call!r}")
        yield call


def _call_timeout(call_timeout: Duration | None) -> float | None:
    limit = None if call_timeout is None else seconds(call_timeout, "call_timeout")
    if limit == 0:
        raise ConfigError("call_timeout is 0: give some seconds, or None for no limit")
    return limit
