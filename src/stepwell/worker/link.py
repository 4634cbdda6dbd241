"""How a part of the worker asks the database: once, or until it is answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

import psycopg

from stepwell.postgres.database import Database
from stepwell.postgres.errors import in_short, is_missing, is_permanent, is_transient
from stepwell.postgres.fetch import afetch
from stepwell.postgres.hints import aexplain
from stepwell.postgres.queries import Query
from stepwell.postgres.threads import in_thread
from stepwell.telemetry.events import DatabaseBack, DatabaseLost, Events
from stepwell.worker.connections import Connections
from stepwell.worker.watch import about_to_write

Row = TypeVar("Row")

_LONGEST_PAUSE = 1.0
# How often something may be missing before it counts as gone: with the pauses that is some seconds.
_MISSING_TRIES = 10


class Link:
    """Runs queries, each on a connection that it borrows. Not for concurrent use. `slow`: its queries may take long."""

    def __init__(self, name: str, connections: Connections, events: Events, *, slow: bool = False) -> None:
        self._name = name
        self._connections = connections
        self._database = connections.database
        self._events = events
        self._slow = slow
        self.losses = 0
        """How often `insist` had to try again: each time what it asked may have been done, and only the reply lost."""

    async def fetch(self, query: Query[Row]) -> list[Row]:
        """Run a query once. A connection that is lost is dropped, so the next call opens another."""
        connection = await self._connections.lend(slow=self._slow)
        try:
            written = about_to_write(self._name, query.text)
            rows = await afetch(connection, query)
            written(rows)
            return rows
        except psycopg.Error as error:
            if self._database.switchovers.notice(error):
                await connection.close()
            raise
        finally:
            self._connections.take_back(connection)

    async def insist(
        self,
        query: Query[Row],
        worthwhile: Callable[[], bool] = lambda: True,
        *,
        waits_for_locks: bool = True,
        memory_tries: int | None = None,
    ) -> list[Row] | None:
        """Run a query until it works, pausing between tries, as long as it is `worthwhile`; else None.

        Raises what the server refused for what it says, and, explained, what only a person can mend. Unless it
        `waits_for_locks` it raises `LockNotAvailable`, too; and after `memory_tries` for which the server lacked
        memory it raises `OutOfMemory`: what is asked for may be too large.
        """
        pause = 0.05
        lost = False
        missing = 0
        while worthwhile():
            try:
                rows = await self.fetch(query)
            except (psycopg.Error, OSError) as error:
                missing += is_missing(error)
                if is_permanent(error) and not 0 < missing < _MISSING_TRIES:
                    raise await aexplain(error, self._database.dsn) from error
                if not is_transient(error) and not is_missing(error):
                    raise
                if not waits_for_locks and isinstance(error, psycopg.errors.LockNotAvailable):
                    raise
                if memory_tries is not None and isinstance(error, psycopg.errors.OutOfMemory):
                    memory_tries -= 1
                    if memory_tries <= 0:
                        raise
                self.losses += 1
                if not lost:
                    lost = True
                    self._events.emit(DatabaseLost(self._name, in_short(error)))
                if self._database.is_embedded:
                    await in_thread(self._database.revive)
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                if lost:
                    self._events.emit(DatabaseBack(self._name))
                return rows
        return None

    def apart(self, name: str) -> LinkApart:
        """One with a connection of its own, to the same database."""
        return LinkApart(name, self._database, self._events)


class LinkApart(Link):
    """A link with a connection of its own, for what may be long in coming: others must not wait for that."""

    def __init__(self, name: str, database: Database, events: Events) -> None:
        super().__init__(name, Connections(database, most=1), events)

    def sever(self) -> None:
        """Make whatever waits for an answer on its connection fail now, and the next call open another."""
        self._connections.sever()

    def close(self) -> None:
        """Close its connection."""
        self._connections.close()
