"""Put the schedules that are in the app's code into the database at the start, and missing ones after a lost lease."""

from __future__ import annotations

import asyncio

import psycopg

from stepwell.app import App
from stepwell.errors import StepwellError
from stepwell.postgres.errors import is_permanent, is_transient
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.worker import SchedulesRemoved
from stepwell.worker.duty_runner import DutyRunner

_DUTY = "putting in the schedules of this app"
_PAUSE = 5.0


class DeclaredSchedules:
    """The schedules of one app. While a worker has no lease, others may find them stale and remove them."""

    def __init__(self, app: App, duties: DutyRunner, events: EventBus) -> None:
        self._app = app
        self._duties = duties
        self._events = events
        self._wanted = asyncio.Event()
        self._regained_by: str | None = None
        if not app.scheduler.is_idle:
            self._wanted.set()

    def lease_regained(self, worker_id: str) -> None:
        """Put in those that are missing: others may have removed them. From now on this changes no schedule, even if
        none was put in yet: a worker with newer code may have started meanwhile."""
        self._regained_by = worker_id
        if self._app.scheduler.names:
            self._wanted.set()

    async def put(self) -> None:
        """Put them in. If another session has locked one, `run` tries again later."""
        if not self._wanted.is_set():
            return
        self._wanted.clear()  # before the call, during which the lease may be lost and regained
        # Not the app's own pool, which would keep a connection that only handlers need again.
        database = self._app.database.with_pool_of(1)
        try:
            removed = await self._app.scheduler.put_declared(database, self._regained_by)
        except (psycopg.Error, StepwellError) as error:
            self._wanted.set()
            cause = error if isinstance(error, psycopg.Error) else error.__cause__
            if cause is None or not is_transient(cause):
                raise
            self._duties.failed(_DUTY, " ".join(str(cause).split()))
            return
        finally:
            await database.aclose()
        self._duties.recovered(_DUTY)
        if removed:
            self._events.emit(SchedulesRemoved(tuple(removed)))

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            await asyncio.sleep(1)
            try:
                await self.put()
            except StepwellError as error:
                # At the start this ended the worker. By now jobs run here, and are better kept.
                if error.__cause__ is not None and is_permanent(error.__cause__):
                    raise
                self._duties.failed(_DUTY, str(error))
                await asyncio.sleep(_PAUSE)
