"""The class `App`: its options, its database, and when it opens and closes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar

from stepwell.app.extensions import AppExtensions
from stepwell.app.fleet import FleetControl
from stepwell.app.registry import TaskRegistry, TasksByName
from stepwell.app.task_defaults import DRIFTS, TaskDefaults, check_app_limits
from stepwell.app.worker_hook import WorkerHook, check_hook
from stepwell.calendar.schedule import STALES, Stale
from stepwell.durable.backend import Drift
from stepwell.jobs.app_failures import AppFailures
from stepwell.jobs.app_jobs import AppJobs
from stepwell.jobs.app_limits import AppLimits
from stepwell.jobs.enqueue import JobStore
from stepwell.plugins.loaded import LoadedPlugins
from stepwell.plugins.plugin import Plugin
from stepwell.postgres.acting import acting
from stepwell.postgres.threads import in_thread
from stepwell.resources.declared import Resources
from stepwell.schedules.app_schedules import AppSchedules
from stepwell.schedules.declare import Scheduler
from stepwell.telemetry.bus import EventBus, Telemetry
from stepwell.values.admission import Limit
from stepwell.values.bounds import check_choice, check_flag, check_name, check_whole
from stepwell.values.duration import Duration, seconds
from stepwell.values.policy import DEFAULT_KEEPS, Keep, check_keep, check_retry, check_timeout
from stepwell.values.public_call import public_call
from stepwell.values.retry import Retry
from stepwell.values.sealing import Sealer, ValueCodec

# Calls that other libraries have on their app.
_ELSEWHERE = ("enqueue", "aenqueue", "delay", "send_task", "enqueue_job", "apply_async")
AnyHook = TypeVar("AnyHook", bound=WorkerHook)


class App(TaskRegistry, AppJobs, AppLimits, AppFailures, AppSchedules, FleetControl, AppExtensions):
    """Tasks, and the Postgres database that their jobs live in.

    `database` is a URL, `"embedded"` (a Postgres of its own in ./.stepwell, for development), `"embedded:PATH"`, or
    None for the value of the environment variable STEPWELL_DATABASE_URL. Connections are opened when they are needed;
    `with app:` or `async with app:` checks the database at once and closes them at the end.

    `name` tells this app from other services on the same database. The jobs of an app with a name belong to it: only
    workers of an app of that name run them. Without a name, any worker that knows the task runs them, and schedules
    belong to the module in which the app is made.

    When a worker starts, schedules that are no longer in the code are removed according to `stale_schedules`:
    "remove_stale" removes them once no live worker's code has had them for `schedule_grace`; "remove_all" removes them
    at once, and those made at run time too; "keep" keeps them.

    `queue`, `retry`, `timeout`, `keep` and `keep_failed` are those of tasks that give no own. By default the queue is
    "default", and jobs are kept for 7 days after they have succeeded, and for 30 days after they failed or were
    cancelled.

    `limits` hold for all jobs of the app's tasks together, beside the limits of each task: `limits=[Limit(20,
    key="shop")]`.

    `drift` says what happens when a saved step of a durable job is called with other arguments: "warn", the default,
    uses the saved value, "fail" fails the attempt, "rerun" runs the step again.

    With `logs`, what the handlers of tasks log is kept with their jobs, unless a task says otherwise. Tasks with
    `batch` have no logs.

    A job may have an argument that the worker's code does not know, or lack one that it needs, as happens during a
    deploy. Such a job waits for `misfit_grace` for a worker whose code takes it, and then fails; with 0 it fails at
    once.

    A call raises `DatabaseTimeout` when it gets no connection, or no answer from the server, within `call_timeout`.
    With None it waits for as long as the server is silent. The limit is for silence: `enqueue_many` of a million jobs
    takes longer and is not cut off.

    `plugins` extend the app, see `Plugin`.

    `codecs` transform args, results, steps, events and signals before they are stored, in this order: they compress or
    encrypt. Stored values that are not encoded are read as they are.
    """

    @public_call("App")
    def __init__(
        self,
        database: str | None = None,
        *,
        name: str | None = None,
        queue: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        keep: Keep | None = None,
        keep_failed: Keep | None = None,
        limits: Sequence[Limit] = (),
        max_args_size: int = 1024 * 1024,
        max_result_size: int = 1024 * 1024,
        pool_size: int = 10,
        stale_schedules: Stale = "remove_stale",
        schedule_grace: Duration = "10m",
        drift: Drift | None = None,
        logs: bool | None = None,
        misfit_grace: Duration = "1h",
        call_timeout: Duration | None = "10s",
        plugins: Sequence[Plugin] = (),
        codecs: Sequence[ValueCodec] = (),
    ) -> None:
        self.name = check_name(_module_of_caller() if name is None else name, "name")
        self.owner = None if name is None else self.name
        """The owner of its jobs: the name that the app was given; None: any worker that knows the task runs them."""
        self.queue = check_name("default" if queue is None else queue, "queue")
        self.max_result_size = check_whole(max_result_size, "max_result_size", 1)
        self.events = EventBus()
        """The bus of this app's telemetry events. The buses of its workers hand theirs on to its subscribers."""
        from stepwell.postgres.database import Database  # it needs psycopg, which takes long to import

        self.database = Database(
            database,
            pool_size=check_whole(pool_size, "pool_size", 1),
            call_timeout=check_timeout(call_timeout, "call_timeout"),
            events=self.events,
        )
        self.plugins = LoadedPlugins(plugins, self.events)
        self.resources = Resources()
        self.start_hooks: list[WorkerHook] = []
        self.stop_hooks: list[WorkerHook] = []
        given = {
            "queue": queue,
            "retry": retry,
            "timeout": timeout,
            "keep": keep,
            "keep_failed": keep_failed,
            "drift": drift,
            "logs": logs,
        }
        self._tasks = TasksByName()
        self._defaults = TaskDefaults(
            self.queue,
            check_retry(retry) or Retry(),
            check_timeout(timeout),
            check_keep(DEFAULT_KEEPS[0] if keep is None else keep, "keep"),
            check_keep(DEFAULT_KEEPS[1] if keep_failed is None else keep_failed, "keep_failed"),
            check_choice("warn" if drift is None else drift, "drift", DRIFTS),
            check_flag(False if logs is None else logs, "logs"),
            frozenset(name for name, value in given.items() if value is not None),
            check_app_limits(limits),
        )
        self._job_store = JobStore(
            self.database,
            self._tasks,
            max_args_size=check_whole(max_args_size, "max_args_size", 1),
            owner=self.owner,
            misfit_grace=seconds(misfit_grace, "misfit_grace"),
            plugins=self.plugins,
            events=self.events,
            start=self.start_plugins,
            resources=self.resources,
            sealer=Sealer(codecs),
        )
        self.scheduler = Scheduler(
            self.name,
            self.database,
            check_choice(stale_schedules, "stale_schedules", STALES),
            seconds(schedule_grace, "schedule_grace"),
            named=name is not None,
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            # Hidden from type checkers: with it they would accept every wrong name.
            hint = ": write task.enqueue(...), or in async code await task.aenqueue(...). If you have only the name of "
            hint += "a task of this app, app.tasks['name'] is the task"
            raise AttributeError(
                f"'App' object has no attribute {name!r}{hint if name in _ELSEWHERE else ''}", name=name, obj=self
            )

    @property
    def dsn(self) -> str:
        """The connection string of the database. An embedded Postgres is started and migrated first."""
        dsn = self.database.dsn
        if self.database.is_embedded:
            self.database.ensure_ready()
        return dsn

    @property
    def url(self) -> str:
        """The database as a URL, `postgresql://user:password@host:port/database?...`, for other libraries.

        asyncpg takes it as it is, SQLAlchemy with a driver's name in it: `postgresql+psycopg://`. An embedded Postgres
        is started and migrated first. Unlike `dsn`, it has none of the settings that Stepwell adds.
        """
        _ = self.dsn
        return self.database.address.url

    @property
    def sealer(self) -> Sealer:
        """Seals what is stored, with the app's codecs."""
        return self._job_store.sealer

    def subscribe(self, receive: Callable[[Telemetry], None]) -> None:
        """Call `receive` with each telemetry event of this app and of its workers in this process. It must not block,
        and may be called in any thread."""
        self.events.subscribe(receive)

    def start_plugins(self) -> None:
        """Start the plugins, unless they are started already."""
        self.plugins.start_app(self)

    def acting_as(self, who: str) -> AbstractContextManager[None]:
        """Record what this thread or asyncio task does to jobs, schedules and settings in the block as acts of a
        person, in the transaction of each act: `with app.acting_as("ada"): app.pause("mail")`. `stepwell audit` and the
        dashboard show them. Without it, calls of a program are not recorded; enqueues never are."""
        return acting(check_name(who, "who"), "python")

    def __enter__(self) -> Self:
        try:
            self.start_plugins()
            self.database.ensure_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            self.start_plugins()
            await in_thread(self.database.ensure_ready)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def close(self) -> None:
        """Close the connections that sync code opened. The app can be used again: it opens new ones as needed."""
        try:
            # First: functions that handle events may still use the app.
            self.plugins.stop_app(self)
        finally:
            self._job_store.waiter.close()
            self.database.close()

    async def aclose(self) -> None:
        """Close the connections that this event loop opened, and those that `close` closes."""
        try:
            # First: functions that handle events may still use the app. Plugins may block in it, and async functions
            # need the event loop meanwhile.
            await in_thread(partial(self.plugins.stop_app, self))
        finally:
            await in_thread(self._job_store.waiter.close)
            await self.database.aclose()

    def on_worker_start(self, fn: AnyHook, /) -> AnyHook:
        """Register a function that each worker of this app calls before it claims its first job, for example to open a
        client that handlers share. Plain or `async def`, it takes no arguments and runs on the worker's event loop.

        Hooks are called in order. If one fails, the worker does not start.
        """
        self.start_hooks.append(check_hook("on_worker_start", fn))
        return fn

    def on_worker_stop(self, fn: AnyHook, /) -> AnyHook:
        """Register a function that each worker of this app calls after its last handler has ended or was abandoned.
        Stop hooks are called in reverse order, each one even if others have failed.

        If the k-th start hook failed, only the stop hooks before the k-th are called: give each start hook its stop
        hook, in the same order. An `async def` that takes longer than 10 seconds is cancelled.
        """
        self.stop_hooks.append(check_hook("on_worker_stop", fn))
        return fn


def _module_of_caller() -> str:
    """Return the module that makes the app. For a program that is run, that is the program's own name, so that
    `python -m shop.jobs` and a worker for shop.jobs:app are the same app."""
    frame = sys._getframe(3)  # pyright: ignore[reportPrivateUsage]
    name = str(frame.f_globals.get("__name__", "app"))
    if name != "__main__":
        return name
    spec = frame.f_globals.get("__spec__")
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    from pathlib import Path  # a program that imports its app starts without it

    return Path(sys.argv[0] or "app").stem or "app"
