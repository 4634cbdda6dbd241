"""How a part of the worker asks the database: once, or until it is answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

import psycopg

from stepwell.postgres.errors import is_missing, is_permanent, is_transient
from stepwell.postgres.fetch import afetch
from stepwell.postgres.hints import aexplain
from stepwell.postgres.queries import Query
from stepwell.postgres.threads import in_thread
from stepwell.worker.connections import Connections, Outage
from stepwell.worker.write_observer import about_to_write

Row = TypeVar("Row")

_LONGEST_PAUSE = 1.0
# How often a function or table may be missing before it counts as gone: with the pauses that is some seconds.
_MISSING_TRIES = 10


class WorkerConnection:
    """Runs the queries of one part of the worker, each on a connection that it borrows. Not for concurrent use. `slow`:
    its queries may take long."""

    def __init__(self, name: str, connections: Connections, *, slow: bool = False) -> None:
        self.name = name
        self._connections = connections
        self._database = connections.database
        self._slow = slow
        self._is_out = False
        self.losses = 0
        """How often `insist` had to try again. Each time the statement may have been done, and only its reply lost."""

    @property
    def outage(self) -> Outage:
        return self._connections.outage

    async def fetch(self, query: Query[Row]) -> list[Row]:
        """Run a query once. A connection that is lost is dropped, so the next call opens another."""
        connection = await self._connections.lend(slow=self._slow)
        try:
            written = about_to_write(self.name, query.text)
            rows = await afetch(connection, query)
            written(rows)
            return rows
        except psycopg.Error as error:
            if self._database.switchovers.notice(error):
                await connection.close()
            raise
        except KeyboardInterrupt:
            # Raised in the midst of psycopg, which may hold its lock for ever now.
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
        """Run a query until it works, pausing between tries, as long as it is `worthwhile`; else None. Raises errors
        that another try would not cure; permanent ones, such as a missing schema, with a hint. Unless it
        `waits_for_locks`, it also raises `LockNotAvailable`, and after `memory_tries` without memory on the server
        `OutOfMemory`: the answer may be too large."""
        pause = 0.05
        missing = 0
        while worthwhile():
            try:
                rows = await self.fetch(query)
            except (psycopg.Error, OSError) as error:
                missing += is_missing(error)
                if is_permanent(error) and not 0 < missing < _MISSING_TRIES:
                    raise await aexplain(error, self._database.dsn) from error
                if not is_transient(error) and not is_missing(error):
                    self._note_answer()
                    raise
                if not waits_for_locks and isinstance(error, psycopg.errors.LockNotAvailable):
                    self._note_answer()
                    raise
                if memory_tries is not None and isinstance(error, psycopg.errors.OutOfMemory):
                    memory_tries -= 1
                    if memory_tries <= 0:
                        raise
                self.losses += 1
                self._is_out = True
                self.outage.begin(self, self.name, error)
                if self._database.is_embedded:
                    await in_thread(self._database.address.revive)
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._note_answer()
                return rows
        return None

    def _note_answer(self) -> None:
        if self._is_out:
            self._is_out = False
            self.outage.end(self)

    def dedicated(self, name: str) -> DedicatedConnection:
        return DedicatedConnection(name, Connections(self._database, self.outage, most=1))


class DedicatedConnection(WorkerConnection):
    """A worker connection that shares its connection with no other part. For answers that may take long to come."""

    def sever(self) -> None:
        """Make a statement that waits for an answer fail now, and the next call open another connection."""
        self._connections.sever()

    def close(self) -> None:
        self.outage.forget(self)
        self._connections.close()
