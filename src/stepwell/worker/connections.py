"""The few connections over which a worker does all its work, except listening and renewing its lease.

Each part of the worker has a `WorkerConnection`, which borrows one of these for one statement. So an idle worker holds
one connection, and a busy one no more than can be in use at once. Slow statements use one of them at a time, or claims
and outcomes would wait for upkeep. An `Outage` logs once when the database is away, however many parts notice.
"""

from __future__ import annotations

import asyncio

from psycopg.conninfo import make_conninfo

from stepwell.postgres.connection import AsyncConnection, aopen_within, sever
from stepwell.postgres.database import Database
from stepwell.postgres.errors import in_short
from stepwell.postgres.pool import IdleConnections
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.worker import DatabaseBack, DatabaseLost


class Outage:
    """The parts of a worker that cannot use the database now. An outage lasts until each of them can again."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._parts: set[object] = set()

    def begin(self, part: object, name: str, error: BaseException) -> None:
        """A part cannot use the database. The first one to notice logs it."""
        if not self._parts:
            self._events.emit(DatabaseLost(name, in_short(error)))
        self._parts.add(part)

    def end(self, part: object) -> None:
        """The database has answered a part. The last one to recover logs it."""
        if part in self._parts:
            self._parts.discard(part)
            if not self._parts:
                self._events.emit(DatabaseBack())

    def forget(self, part: object) -> None:
        self._parts.discard(part)


MOST = 3
"""As many as claims, outcomes and steps keep busy at the same time."""
# Seconds for each host that the URL names.
_OPEN_WITHIN = 3
# A connection that was idle for this long is closed.
_LONGEST_IDLE = 10.0


class Connections:
    """At most `most` connections, opened on demand."""

    def __init__(self, database: Database, outage: Outage, most: int = MOST) -> None:
        self.database = database
        self.outage = outage
        self._idle = IdleConnections[AsyncConnection](database.switchovers, _LONGEST_IDLE)
        self._permits = asyncio.Semaphore(most)
        self._slow = asyncio.Semaphore(1)
        self._lent: dict[AsyncConnection, bool] = {}

    async def lend(self, *, slow: bool = False) -> AsyncConnection:
        """An unused connection in autocommit. Raises Postgres' own error if it cannot open one. `slow`: for long."""
        if slow:
            await self._slow.acquire()
        try:
            await self._permits.acquire()
            try:
                connection = self._idle.take() or await self._open()
            except BaseException:
                self._permits.release()
                raise
        except BaseException:
            if slow:
                self._slow.release()
            raise
        self._lent[connection] = slow
        return connection

    def take_back(self, connection: AsyncConnection) -> None:
        """Return a lent connection. If it is lost, or left in a transaction, it is closed."""
        if self._lent.pop(connection):
            self._slow.release()
        self._permits.release()
        self._idle.put(connection)

    def sever(self) -> None:
        """Make every statement that waits for an answer fail now, and open new connections for the next ones."""
        self._idle.clear()
        for connection in self._lent:
            sever(connection)

    def leave_old_server(self) -> None:
        """Sever the lent connections that are older than the last switchover. The pool itself drops idle ones."""
        for connection in self._lent:
            if self._idle.is_old(connection):
                sever(connection)

    def close(self) -> None:
        self._idle.close()

    async def _open(self) -> AsyncConnection:
        count = self.database.switchovers.count
        # Other parts wait for the permit: a network that was cut must not keep it for long.
        dsn = make_conninfo(self.database.dsn, connect_timeout=_OPEN_WITHIN)
        return self._idle.opened(await aopen_within(dsn, None), count)
