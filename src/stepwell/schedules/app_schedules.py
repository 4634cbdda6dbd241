"""The calls of `App` about schedules: declare them in code, or make them at run time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar, Unpack

from stepwell.calendar.schedule import ScheduleInfo, When
from stepwell.calendar.timing import parse_timing
from stepwell.errors import ConfigError
from stepwell.jobs.enqueue import JobStore
from stepwell.jobs.task import Task
from stepwell.postgres import queries
from stepwell.postgres.database_type import Database
from stepwell.postgres.query_plan import QueryPlan, arun, rows_of, run_call
from stepwell.schedules.declare import ScheduleOptions, Scheduler, new_declaration
from stepwell.schedules.handle import ScheduleHandle, opened_schedule
from stepwell.values.bounds import check_name
from stepwell.values.public_call import public_call

AnyTask = TypeVar("AnyTask", bound=Task[..., Any])


class AppSchedules:
    """The part of `App` that is about schedules."""

    name: str
    database: Database
    scheduler: Scheduler
    _job_store: JobStore

    @public_call("app.schedule", ScheduleOptions)
    def schedule(self, when: When, **options: Unpack[ScheduleOptions]) -> Callable[[AnyTask], AnyTask]:
        """Enqueue a task by cron or at an interval: `@app.schedule("0 9 * * mon-fri", tz="Europe/Paris")`, above
        `@app.task`. A task may have several schedules, each with a `name`; without one, a schedule has the task's name,
        the first of them if the task was renamed.

        `when` is cron text of five fields, or six with seconds first, in the time zone `tz` (default UTC), or an
        interval such as "15m", whose ticks are counted from 1970. `overlap` says what a tick does while the previous
        run has not ended, `catchup` what happens to ticks that no worker saw; `jitter` delays each job by up to that
        long. The other options apply to its jobs, as in `using`. The schedule takes effect when a worker starts.
        """

        parse_timing(when, options.get("tz"))  # so that an error is raised here, even if no task follows

        def declare(task: AnyTask) -> AnyTask:
            own = self._own_task(task, "@app.schedule")
            self.scheduler.declare(new_declaration("app.schedule", own, when, options))
            return task

        return declare

    def schedule_task(
        self,
        task: Task[..., Any],
        when: When,
        *,
        connection: object | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        """Make a schedule at run time, or change the schedule of that name. Options as for `schedule`. With
        `connection`, a connection or session of your own, this happens if and only if your transaction commits."""
        with self._headers(task, connection) as headers:
            plan = self._put("schedule_task", task, when, options, headers)
            return run_call("schedule_task", plan, self.database, connection)

    async def aschedule_task(
        self,
        task: Task[..., Any],
        when: When,
        *,
        connection: object | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        """The same as `schedule_task`, for async code."""
        with self._headers(task, connection) as headers:
            return await arun(self._put("aschedule_task", task, when, options, headers), self.database, connection)

    def _put(
        self, caller: str, task: Any, when: When, options: ScheduleOptions, headers: str | None
    ) -> QueryPlan[ScheduleInfo]:
        declaration = new_declaration(caller, self._own_task(task, caller), when, options)
        return self._opened((yield from self.scheduler.put(declaration, headers)))

    @contextmanager
    def _headers(self, task: object, connection: object | None) -> Generator[str | None]:
        """Let the plugins see a schedule that is made at run time. Yields their headers, which its runs get."""
        if not self._job_store.is_observed or not isinstance(task, Task):
            yield None
            return
        with self._job_store.observed_schedule(task.name, task.queue, connection) as headers:
            yield headers

    def schedules(self) -> list[ScheduleInfo]:
        """List the schedules of this app in the database, with their next and last runs."""
        found = run_call("schedules", rows_of(queries.schedules.schedules(self.name)), self.database)
        return [self._opened(schedule) for schedule in found]

    async def aschedules(self) -> list[ScheduleInfo]:
        """The same as `schedules`, for async code."""
        found = await self.database.afetch(queries.schedules.schedules(self.name))
        return [self._opened(schedule) for schedule in found]

    def _opened(self, schedule: ScheduleInfo) -> ScheduleInfo:
        return opened_schedule(schedule, self._job_store.sealer)

    def schedule_named(self, name: str) -> ScheduleHandle:
        """Return a handle to a schedule of this app: read, pause, resume, trigger, backfill or delete
        it."""
        store = self._job_store
        return ScheduleHandle(check_name(name, "name"), self.name, self.database, store.handle, store.sealer)

    def _own_task(self, task: Any, caller: str) -> Task[..., Any]:
        if not isinstance(task, Task):
            hint = ": write it above @app.task" if caller.startswith("@") else ""
            raise ConfigError(f"{caller} takes a task, as @app.task makes it from a function, not {task!r}{hint}")
        if self._job_store.tasks.get(task.name) is not task:
            raise ConfigError(f"{caller}: {task.name!r} is a task of another app")
        return task  # pyright: ignore[reportUnknownVariableType]
