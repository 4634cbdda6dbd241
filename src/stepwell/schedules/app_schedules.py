"""The calls of `App` about schedules: declare them in code, or make them at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stepwell.calendar.schedule import Catchup, Overlap, ScheduleInfo, When
from stepwell.calendar.timing import parse_timing
from stepwell.errors import ConfigError
from stepwell.jobs.enqueue import JobStore
from stepwell.jobs.task import Task
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.postgres.query_plan import arun, run
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.schedules.declare import Scheduler, new_declaration
from stepwell.schedules.handle import ScheduleHandle
from stepwell.values.bounds import check_name
from stepwell.values.duration import Duration
from stepwell.values.policy import Keep
from stepwell.values.public_call import public_call
from stepwell.values.retry import Retry

AnyTask = TypeVar("AnyTask", bound=Task[..., Any])


class AppSchedules:
    """The part of `App` that is about schedules."""

    name: str
    database: Database
    scheduler: Scheduler
    _job_store: JobStore

    @public_call("app.schedule")
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
        `@app.task`. A task may have several schedules, each with a `name`; without one, a schedule has the task's name.

        `when` is cron text of five fields, or six with seconds first, in the time zone `tz` (default UTC), or an
        interval such as "15m", whose ticks are counted from 1970. `overlap` says what a tick does while the previous
        run has not ended, `catchup` what happens to ticks that no worker saw; `jitter` delays each job by up to that
        long. The other options apply to its jobs, as in `using`. The schedule takes effect when a worker starts.
        """

        parse_timing(when, tz)  # so that an error is raised here, even if no task follows

        def declare(task: AnyTask) -> AnyTask:
            own = self._own_task(task, "@app.schedule")
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
        """Make a schedule at run time, or change the schedule of that name. Options as for `schedule`. With
        `connection`, a psycopg connection of your own, this happens if and only if your transaction commits."""
        refuse_in_event_loop("schedule_task", "aschedule_task")
        options = self._own_task(task, "schedule_task").using(
            queue=queue, priority=priority, metadata=metadata, retry=retry, timeout=timeout, keep=keep,
            keep_failed=keep_failed,
        )  # fmt: skip
        declaration = new_declaration(task, when, tz, args, name, overlap, catchup, jitter, options)
        return run(self.scheduler.put(declaration), self.database, connection)

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
        options = self._own_task(task, "aschedule_task").using(
            queue=queue, priority=priority, metadata=metadata, retry=retry, timeout=timeout, keep=keep,
            keep_failed=keep_failed,
        )  # fmt: skip
        declaration = new_declaration(task, when, tz, args, name, overlap, catchup, jitter, options)
        return await arun(self.scheduler.put(declaration), self.database, connection)

    def schedules(self) -> list[ScheduleInfo]:
        """List the schedules of this app in the database, with their next and last runs."""
        refuse_in_event_loop("schedules", "aschedules")
        return self.database.fetch(queries.schedules.schedules(self.name))

    async def aschedules(self) -> list[ScheduleInfo]:
        """The same as `schedules`, for async code."""
        return await self.database.afetch(queries.schedules.schedules(self.name))

    def schedule_named(self, name: str) -> ScheduleHandle:
        """Return a handle to a schedule of this app: read, pause, resume, trigger or delete it."""
        return ScheduleHandle(check_name(name, "name"), self.name, self.database, self._job_store.handle)

    def _own_task(self, task: Any, caller: str) -> Task[..., Any]:
        if not isinstance(task, Task):
            hint = ": write it above @app.task" if caller.startswith("@") else ""
            raise ConfigError(f"{caller} takes a task, as @app.task makes it from a function, not {task!r}{hint}")
        if self._job_store.tasks.get(task.name) is not task:
            raise ConfigError(f"{caller}: {task.name!r} is a task of another app")
        return task  # pyright: ignore[reportUnknownVariableType]
