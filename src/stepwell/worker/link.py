"""One connection of the worker, which comes back by itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from stepwell.advice import aexplain
from stepwell.aside import aside
from stepwell.db import Database, afetch
from stepwell.events import DatabaseBack, DatabaseLost, Events
from stepwell.queries import Query
from stepwell.trouble import in_short, is_hopeless, is_missing, is_transient
from stepwell.worker.watch import about_to_write

Row = TypeVar("Row")

_LONGEST_PAUSE = 1.0
# How often something may be missing before it counts as gone: with the pauses that is some seconds.
_MISSING_TRIES = 10


class Link:
    """Runs queries on one connection, reconnecting as needed. Not for concurrent use."""

    def __init__(self, name: str, database: Database, events: Events) -> None:
        self._name = name
        self._database = database
        self._events = events
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._switchovers = 0
        self.losses = 0
        """How often `insist` had to try again: each time what it asked may have been done, and only the reply lost."""

    async def fetch(self, query: Query[Row]) -> list[Row]:
        """Run a query once. A connection that is lost is dropped, so the next call opens another."""
        try:
            connection = await self.connect()
            written = about_to_write(self._name, query.text)
            rows = await afetch(connection, query)
            written(rows)
            return rows
        except BaseException as error:
            lost = self._connection is not None and (self._connection.broken or self._connection.closed)
            if self._database.switchovers.notice(error) or lost:
                await self.close()
            raise

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
                if is_hopeless(error) and not 0 < missing < _MISSING_TRIES:
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
                    await aside(self._database.revive)
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                if lost:
                    self._events.emit(DatabaseBack(self._name))
                return rows
        return None

    def another(self, name: str) -> Link:
        """One of its own, to the same database."""
        return Link(name, self._database, self._events)

    async def connect(self) -> psycopg.AsyncConnection[Any]:
        """The connection, opened if there is none, or none since the last switchover."""
        count = self._database.switchovers.count
        if self._switchovers != count:
            await self.close()
        if self._connection is None:
            self._switchovers = count
            self._connection = await self._database.aconnect()
        return self._connection

    def leave_old_server(self) -> None:
        """Close the connection, which somebody may be using, if it is older than the last switchover."""
        if self._switchovers != self._database.switchovers.count:
            self.sever()

    def sever(self) -> None:
        """Make whatever waits for an answer on this connection fail now, and the next call open another."""
        if self._connection is not None:
            sever(self._connection)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def sever(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """End a connection from this side, so that who waits on it, in whatever thread, fails at once."""
    with contextlib.suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
