"""Pools of connections: one for sync code, and one for each event loop.

A caller that finds no idle connection opens one, and while the server is away it tries again at short intervals: so it
is connected as soon as the server is back. A pool closes, and never lends, an idle connection that died, that was left
in a transaction or a pipeline, or that is older than the last switchover. These checks cost no round trip.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Generic, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from stepwell.postgres.connection import (
    AsyncConnection,
    SyncConnection,
    aopen_within,
    has_input,
    in_pipeline,
    open_within,
)
from stepwell.postgres.errors import NoConnection, in_short, is_transient
from stepwell.postgres.switchover import Switchovers

Connection = TypeVar("Connection", SyncConnection, AsyncConnection)

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5
_LONGEST_IDLE = 10 * 60.0
_LONGEST_LIFE = 60 * 60.0


class IdleConnections(Generic[Connection]):
    """A stack of idle connections, the last used on top."""

    def __init__(self, switchovers: Switchovers, longest_idle: float = _LONGEST_IDLE) -> None:
        self._switchovers = switchovers
        self._longest_idle = longest_idle
        self._connections: list[tuple[Connection, float]] = []
        # When each connection was opened, and at which count of switchovers. Lent connections are included.
        self._opened: weakref.WeakKeyDictionary[Connection, tuple[float, int]] = weakref.WeakKeyDictionary()
        self._closed = False
        self._lock = threading.Lock()
        switchovers.register(self)

    def opened(self, connection: Connection, count: int) -> Connection:
        self._opened[connection] = (time.monotonic(), count)
        return connection

    def take(self) -> Connection | None:
        while True:
            with self._lock:
                if not self._connections:
                    return None
                connection, _ = self._connections.pop()
            if self._is_usable(connection) and not has_input(connection):
                return connection
            connection.pgconn.finish()

    def put(self, connection: Connection) -> None:
        """Return a connection, and close those that were idle for too long."""
        now = time.monotonic()
        with self._lock:
            if not self._closed and self._is_usable(connection):
                self._connections.append((connection, now))
            else:
                connection.pgconn.finish()
            while self._connections and now - self._connections[0][1] > self._longest_idle:
                self._connections.pop(0)[0].pgconn.finish()

    def drop_old(self) -> None:
        """Close the idle connections that are older than the last switchover."""
        with self._lock:
            old = [one for one in self._connections if not self._is_usable(one[0])]
            self._connections = [one for one in self._connections if one not in old]
        for connection, _ in old:
            connection.pgconn.finish()

    def close(self) -> None:
        """Close the idle connections now, and the lent ones when they are returned."""
        self._closed = True
        self.clear()

    def clear(self) -> None:
        with self._lock:
            connections, self._connections = self._connections, []
        for connection, _ in connections:
            connection.pgconn.finish()

    def finish(self) -> None:
        """Close all connections, including lent ones, when no caller is left to use them."""
        self.close()
        for connection in list(self._opened):
            connection.pgconn.finish()

    def is_old(self, connection: Connection) -> bool:
        return self._opened[connection][1] != self._switchovers.count

    def _is_usable(self, connection: Connection) -> bool:
        return (
            connection.pgconn.transaction_status == TransactionStatus.IDLE
            and not in_pipeline(connection)
            and not self.is_old(connection)
            and time.monotonic() - self._opened[connection][0] < _LONGEST_LIFE
        )


class _Pool(Generic[Connection]):
    def __init__(self, dsn: str, size: int, switchovers: Switchovers) -> None:
        self._dsn = dsn
        self._size = size
        self._switchovers = switchovers
        self._idle = IdleConnections[Connection](switchovers)
        self.close = self._idle.close
        self.finish = self._idle.finish


class SyncPool(_Pool[SyncConnection]):
    """At most `size` connections for all threads."""

    def __init__(self, dsn: str, size: int, switchovers: Switchovers) -> None:
        super().__init__(dsn, size, switchovers)
        self._permits = threading.Semaphore(size)
        self.last_error: str | None = None
        """Why no connection could be opened the last time."""

    @contextmanager
    def connection(self, within: float) -> Generator[SyncConnection]:
        """Lend a connection. Raises `NoConnection` if there is none `within` so many seconds."""
        deadline = time.monotonic() + within
        if not self._permits.acquire(timeout=within):
            raise _all_in_use(within, self._size)
        try:
            connection = self._idle.take() or self._open(within, deadline)
            try:
                yield connection
            finally:
                self._idle.put(connection)
        finally:
            self._permits.release()

    def _open(self, within: float, deadline: float) -> SyncConnection:
        pause = _FIRST_PAUSE
        while True:
            count = self._switchovers.count
            try:
                return self._idle.opened(open_within(self._dsn, max(deadline - time.monotonic(), _FIRST_PAUSE)), count)
            except psycopg.Error as error:
                self.last_error = in_short(error)
                _raise_if_final(error, within, deadline - pause)
            time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
            pause = min(2 * pause, _LONGEST_PAUSE)


class LoopPool(_Pool[AsyncConnection]):
    """At most `size` connections for one event loop."""

    def __init__(self, dsn: str, size: int, switchovers: Switchovers) -> None:
        super().__init__(dsn, size, switchovers)
        self._permits = asyncio.Semaphore(size)

    @asynccontextmanager
    async def connection(self, within: float) -> AsyncGenerator[AsyncConnection]:
        deadline = time.monotonic() + within
        if not self._permits.locked():
            await self._permits.acquire()  # does not wait
        else:
            try:
                async with asyncio.timeout(within):
                    await self._permits.acquire()
            except TimeoutError:
                raise _all_in_use(within, self._size) from None
        try:
            connection = self._idle.take() or await self._open(within, deadline)
            try:
                yield connection
            finally:
                self._idle.put(connection)
        finally:
            self._permits.release()

    async def _open(self, within: float, deadline: float) -> AsyncConnection:
        pause = _FIRST_PAUSE
        while True:
            count = self._switchovers.count
            left = max(deadline - time.monotonic(), _FIRST_PAUSE)
            try:
                return self._idle.opened(await aopen_within(self._dsn, left), count)
            except psycopg.Error as error:
                _raise_if_final(error, within, deadline - pause)
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
            pause = min(2 * pause, _LONGEST_PAUSE)


def _raise_if_final(error: psycopg.Error, within: float, last_try: float) -> None:
    """Raise the error if another try cannot help, or if there is no time for one."""
    if not is_transient(error):
        raise error
    if time.monotonic() >= last_try:
        raise NoConnection(within, in_short(error)) from error


def _all_in_use(within: float, size: int) -> NoConnection:
    return NoConnection(within, f"all {size} connections of the pool are in use", "raise App(pool_size=...)")
