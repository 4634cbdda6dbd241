"""Run the query of a duty: bounded in time, and if it fails, logged once and tried again while other duties go on."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import psycopg

from stepwell.postgres.database import Database
from stepwell.postgres.errors import in_short, is_data_error, is_lost, is_missing, is_permanent
from stepwell.postgres.hints import aexplain
from stepwell.postgres.queries import Query
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.worker import UpkeepFailed
from stepwell.worker.worker_connection import WorkerConnection

Row = TypeVar("Row")

_LONGEST = 10.0


class DutyRunner:
    """Runs duties over one worker connection, one at a time."""

    def __init__(self, connection: WorkerConnection, database: Database, events: EventBus) -> None:
        self._connection = connection
        self._database = database
        self._events = events
        self._failing: set[str] = set()
        self._free = asyncio.Lock()

    async def do(self, duty: str, query: Query[Row], *, raises_data_errors: bool = False) -> list[Row] | None:
        """Run the query of a duty, named for the log; None: it failed. Raises permanent errors, with a hint. If
        asked to, it also raises errors of values that cannot be stored, which another try would not cure."""
        try:
            async with self._free, asyncio.timeout(_LONGEST):
                rows = await self._connection.fetch(query)
        except TimeoutError:
            self.failed(duty, f"it took longer than {_LONGEST:g} s")
            return None
        except (psycopg.Error, OSError) as error:
            if raises_data_errors and is_data_error(error):
                self._connection.outage.end(self)
                raise
            if is_permanent(error) and (duty in self._failing or not is_missing(error)):
                raise await aexplain(error, self._database.dsn) from error
            if is_lost(error) or isinstance(error, OSError):
                # The worker logs that for all its parts.
                self._connection.outage.begin(self, duty, error)
            else:
                self._connection.outage.end(self)
                self.failed(duty, in_short(error))
            return None
        self._connection.outage.end(self)
        self.recovered(duty)
        return rows

    def recovered(self, duty: str) -> None:
        """A duty was done: its next failure is logged again."""
        self._failing.discard(duty)

    def failed(self, duty: str, error: str) -> None:
        """Log that a duty failed, unless its last try failed, too."""
        if duty not in self._failing:
            self._failing.add(duty)
            self._events.emit(UpkeepFailed(duty, error))
