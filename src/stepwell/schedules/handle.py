"""A schedule by its name: read, pause, resume, trigger, backfill or delete it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from stepwell.calendar.schedule import Backfill, ScheduleInfo, Tick, past_ticks, to_timing
from stepwell.errors import ConfigError, JobExists, ScheduleNotFound, StepwellError
from stepwell.jobs.handle import JobHandle, tell_enqueued
from stepwell.postgres import queries
from stepwell.postgres.database_type import Database
from stepwell.postgres.query_plan import QueryPlan, arun, rows_of, run_call
from stepwell.values.bounds import check_whole
from stepwell.values.sealing import PLAIN, Sealer

_TRIES = 20


class ScheduleHandle:
    """One schedule of an app, which may or may not exist. With `connection`, a connection or session of your own, a
    change happens if and only if your transaction commits."""

    def __init__(
        self,
        name: str,
        owner: str,
        database: Database,
        job: Callable[[str], JobHandle[Any]],
        sealer: Sealer = PLAIN,
    ) -> None:
        self.name = name
        self.owner = owner
        self._database = database
        self._job = job
        self._sealer = sealer

    def __repr__(self) -> str:
        return f"<ScheduleHandle {self.name!r} of {self.owner!r}>"

    def info(self, *, connection: object | None = None) -> ScheduleInfo | None:
        """Read everything about the schedule; None: it does not exist."""
        return run_call("info", self._find(), self._database, connection)

    async def ainfo(self, *, connection: object | None = None) -> ScheduleInfo | None:
        """The same as `info`, for async code."""
        return await arun(self._find(), self._database, connection)

    def ticks(self, limit: int = 20) -> list[Tick]:
        """Read the records of its newest ticks, newest first."""
        return run_call("ticks", self._ticks(limit), self._database)

    async def aticks(self, limit: int = 20) -> list[Tick]:
        """The same as `ticks`, for async code."""
        return await arun(self._ticks(limit), self._database)

    def pause(self, *, connection: object | None = None) -> None:
        """Pause the schedule until it is resumed. Runs that it has enqueued continue."""
        run_call("pause", self._pause(), self._database, connection)

    async def apause(self, *, connection: object | None = None) -> None:
        """The same as `pause`, for async code."""
        await arun(self._pause(), self._database, connection)

    def resume(self, *, connection: object | None = None) -> None:
        """Resume the schedule with its next tick. Ticks that were due during the pause are not made up for."""
        run_call("resume", self._resume(), self._database, connection)

    async def aresume(self, *, connection: object | None = None) -> None:
        """The same as `resume`, for async code."""
        await arun(self._resume(), self._database, connection)

    def trigger(self, *, connection: object | None = None) -> JobHandle[Any]:
        """Enqueue a run now, apart from the timing and whatever else runs. Its tick is the present time. Raises
        `JobExists` if another job has its unique key."""
        return run_call("trigger", self._trigger(connection is not None), self._database, connection)

    async def atrigger(self, *, connection: object | None = None) -> JobHandle[Any]:
        """The same as `trigger`, for async code."""
        return await arun(self._trigger(connection is not None), self._database, connection)

    def backfill(
        self,
        since: datetime,
        until: datetime | None = None,
        *,
        preview: bool = False,
        connection: object | None = None,
    ) -> Backfill:
        """Enqueue runs for the ticks of a past period that had none: from `since` on, before `until`, by default now.

        Each tick has at most one run, however often it is backfilled. A tick that was skipped gets one. Runs are due
        at once; unless the schedule has `overlap="allow"`, each waits for the one before. `ctx.scheduled_for` is the
        tick. With `preview`, nothing is enqueued. Raises `ConfigError` if there are more than 1,000 ticks.
        """
        return run_call("backfill", self._backfill(since, until, preview), self._database, connection)

    async def abackfill(
        self,
        since: datetime,
        until: datetime | None = None,
        *,
        preview: bool = False,
        connection: object | None = None,
    ) -> Backfill:
        """The same as `backfill`, for async code."""
        return await arun(self._backfill(since, until, preview), self._database, connection)

    def delete(self, *, connection: object | None = None) -> bool:
        """Delete the schedule; the jobs that it enqueued stay. False: it did not exist. A schedule that is declared in
        code comes back when a worker starts."""
        return run_call("delete", self._delete(), self._database, connection)

    async def adelete(self, *, connection: object | None = None) -> bool:
        """The same as `delete`, for async code."""
        return await arun(self._delete(), self._database, connection)

    def _find(self) -> QueryPlan[ScheduleInfo | None]:
        found = yield queries.schedules.schedules(self.owner, self.name)
        return opened_schedule(found[0], self._sealer) if found else None

    def _ticks(self, limit: int) -> QueryPlan[list[Tick]]:
        return rows_of(queries.schedules.recent_ticks(self.owner, self.name, check_whole(limit, "limit", 1, 10_000)))

    def _pause(self) -> QueryPlan[None]:
        [paused] = yield queries.schedules.pause_schedule(self.owner, self.name)
        if not paused:
            raise self._missing()

    def _resume(self) -> QueryPlan[None]:
        for _ in range(_TRIES):
            found = yield queries.schedules.schedules(self.owner, self.name)
            if not found:
                raise self._missing()
            schedule: ScheduleInfo = found[0]
            if schedule.paused_at is None:
                return
            [now] = yield queries.reads.clock()
            next_at = to_timing(schedule.cron, schedule.tz, schedule.every).after(now)
            [resumed] = yield queries.schedules.resume_schedule(
                schedule.id, schedule.version, next_at, self.owner, self.name
            )
            if resumed:
                return
        raise StepwellError(f"schedule {self.name!r} is being changed by others all the time: try again")

    def _trigger(self, in_transaction: bool) -> QueryPlan[JobHandle[Any]]:
        try:
            [job_id] = yield queries.schedules.trigger_schedule(self.owner, self.name)
        except JobExists as error:
            error.job = self._job(error.job_id)
            raise
        if job_id is None:
            raise self._missing()
        job = self._job(job_id)
        yield from tell_enqueued(job, in_transaction=in_transaction)
        return job

    def _backfill(self, since: datetime, until: datetime | None, preview: bool) -> QueryPlan[Backfill]:
        _check_period(since, until)
        for _ in range(_TRIES):
            found = yield queries.schedules.schedules(self.owner, self.name)
            if not found:
                raise self._missing()
            schedule: ScheduleInfo = found[0]
            [now] = yield queries.reads.clock()
            timing = to_timing(schedule.cron, schedule.tz, schedule.every)
            ats = past_ticks(timing, since, now if until is None or until > now else until)
            [done] = yield queries.schedules.backfill_schedule(
                self.owner, self.name, schedule.version, ats, preview=preview
            )
            if done.due is None:
                raise self._missing()
            if not done.changed:
                return Backfill(len(ats), done.due, done.ran, done.unknown, done.taken)
        raise StepwellError(f"schedule {self.name!r} is being changed by others all the time: try again")

    def _delete(self) -> QueryPlan[bool]:
        [removed] = yield queries.schedules.remove_schedules(self.owner, [self.name])
        return bool(removed)

    def _missing(self) -> ScheduleNotFound:
        return ScheduleNotFound(
            f"app {self.owner!r} has no schedule {self.name!r} in the database: a schedule that is declared in code is "
            "made when a worker starts; 'stepwell schedules list' shows them all"
        )


def _check_period(since: datetime, until: datetime | None) -> None:
    for name, at in (("since", since), ("until", until)):
        if at is not None and (not isinstance(at, datetime) or at.utcoffset() is None):
            raise ConfigError(f"{name} is {at!r}: it must be a datetime with a time zone")
    if since < datetime(1970, 1, 2, tzinfo=UTC):
        raise ConfigError(f"since is {since}: it must be after 1970")
    if until is not None and until <= since:
        raise ConfigError(f"until is {until}, and since {since}: since must be the earlier one")


def opened_schedule(schedule: ScheduleInfo, sealer: Sealer) -> ScheduleInfo:
    """Return a schedule with its arguments as they were before codecs sealed them."""
    return replace(schedule, args=sealer.shown_args(schedule.args))
