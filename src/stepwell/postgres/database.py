"""Run queries on the app's database: open pools, take a connection, send, and try again where that is safe.

This is all Postgres I/O except that on a worker's own connections. Queries are values, so sync and async are two small
runners and not two libraries.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import psycopg

from stepwell.errors import ConfigError
from stepwell.postgres import migrate
from stepwell.postgres.address import Address
from stepwell.postgres.coalesce import Overdue, answer_within
from stepwell.postgres.connection import (
    AnyConnection,
    AsyncConnection,
    Deadline,
    SyncConnection,
    is_read_only_now,
    open_within,
)
from stepwell.postgres.errors import NoConnection, Unanswered
from stepwell.postgres.fetch import afetch, afetch_each, fetch, fetch_each, pause_or_raise, refuse_stale_answer
from stepwell.postgres.hints import aexplain, explain, has_a_hint
from stepwell.postgres.pool import LoopPool, SyncPool
from stepwell.postgres.queries import Query
from stepwell.postgres.silent import warning_if_silent
from stepwell.postgres.switchover import Switchovers
from stepwell.postgres.threads import in_thread, running_loop
from stepwell.telemetry.bus import EventBus

Row = TypeVar("Row")
Item = TypeVar("Item")

# Seconds before each further try, with jitter: two transactions that deadlocked must not meet again. None: the last.
_TRIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, None)

# How many seconds a call without a limit of its own waits for a connection.
_DEFAULT_WAIT = 30.0
_TURN = 0.25


class Database:
    """The app's Postgres database and the pools of connections to it. Nothing is opened before it is needed."""

    def __init__(
        self,
        url: str | None,
        *,
        pool_size: int,
        create: bool = True,
        call_timeout: float | None = None,
        switchovers: Switchovers | None = None,
        events: EventBus | None = None,
    ) -> None:
        """A call waits `call_timeout` seconds for a connection, and as long for a silent server. None: it waits the
        default time for a connection, and without a limit for a silent server."""
        self.address = Address(url, create=create)
        self._pool_size = pool_size
        self.call_timeout = call_timeout
        self.switchovers = switchovers or Switchovers()
        self._events = events or EventBus()
        self._lock = threading.Lock()
        self._checking = threading.Lock()
        self._checked = False
        self._is_for_handlers = False
        self.refusal: str | None = None
        """Why every call is refused, as in a test that runs without a database; None: calls are welcome."""
        self.home = self
        """The app's own, if this is the same database with other pools."""
        self._pool: SyncPool | None = None
        self._async_pools: dict[asyncio.AbstractEventLoop, LoopPool] = {}
        self._process = os.getpid()

    @property
    def dsn(self) -> str:
        """The connection string. Starts the embedded Postgres if that is the database."""
        return self.address.dsn

    @property
    def is_embedded(self) -> bool:
        """Whether the database is an embedded Postgres that was started."""
        return self.address.embedded is not None

    def move_to(self, url: str | None) -> None:
        """Use the database of this URL from now on; None: the one that the environment names. Close this one first."""
        self.address = Address(url)
        self._checked = False

    def with_pool_of(self, size: int, *, for_handlers: bool = False) -> Database:
        """Return the same database with pools of another size and no limit for a call. `for_handlers`: a handler may
        have made its own transaction read-only, so a read-only error does not prove that the server is."""
        other = Database(self.dsn, pool_size=size, switchovers=self.switchovers, events=self._events)
        other._checked = self._checked
        other._is_for_handlers = for_handlers
        other.home = self.home
        return other

    def check_use(self) -> None:
        if self.refusal is not None:
            raise ConfigError(self.refusal)

    def connect(self) -> SyncConnection:
        """Open a connection in autocommit mode, outside the pool. The caller owns it."""
        self.check_use()
        deadline = self._deadline()
        try:
            connection = self._open(deadline)
        except psycopg.Error as error:
            raise explain(_with_limit(error, deadline), self.dsn) from error
        # The time that opening took does not count against the statements.
        connection.patience = self.call_timeout
        return connection

    def _open(self, deadline: Deadline) -> SyncConnection:
        connection = open_within(self.dsn, deadline.left)
        connection.patience = deadline.patience
        return connection

    def ensure_ready(self, deadline: Deadline | None = None, *, wait: bool = True) -> None:
        """Check, once, that the database answers and its schema fits. An embedded database is migrated instead. With
        `wait`, wait for an unreachable server until the deadline."""
        if self._checked:
            return
        deadline = deadline or self._deadline()
        with self.explaining(deadline):
            # An embedded Postgres is started and migrated here, and that may take any time.
            limit = -1 if deadline.left is None or self.address.may_start_a_server else deadline.left
            if not self._checking.acquire(timeout=limit):
                raise NoConnection(deadline.limit or 0, "the server did not answer when the schema was checked")
            try:
                if not self._checked:
                    self._check(deadline, wait=wait)
            finally:
                self._checking.release()

    def _check(self, deadline: Deadline, *, wait: bool) -> None:
        if self.dsn and self.is_embedded:
            with self._open(Deadline(None)) as connection:
                migrate.migrate(connection)
            deadline.restart()
        if wait:
            pool = SyncPool(self.dsn, 1, self.switchovers)
            limit = _wait_for_connection(deadline)
            warning = warning_if_silent(self.dsn, deadline.limit or limit, lambda: pool.last_error, self._events)
            try:
                with warning, pool.connection(limit) as connection:
                    connection.patience = deadline.patience
                    migrate.check(connection, self.address.migrate_command)
            finally:
                pool.close()
        else:
            with self._open(deadline) as connection:
                migrate.check(connection, self.address.migrate_command)
        self._checked = True

    @contextmanager
    def connection(self, deadline: Deadline | None = None) -> Generator[SyncConnection]:
        """Lend a pooled connection in autocommit mode. Raises `NoConnection` if there is none by the deadline."""
        self.check_use()
        self._forget_after_fork()
        deadline = deadline or self._deadline()
        self.ensure_ready(deadline)
        with self._lock:
            if self._pool is None:
                self._pool = SyncPool(self.dsn, self._pool_size, self.switchovers)
            pool = self._pool
        with pool.connection(_wait_for_connection(deadline)) as connection:
            connection.patience = self.call_timeout
            try:
                yield connection
            except psycopg.Error as error:
                if self._notice_switchover(connection, error):
                    connection.close()
                raise

    @asynccontextmanager
    async def aconnection(self, deadline: Deadline | None = None) -> AsyncGenerator[AsyncConnection]:
        """The same as `connection`, from the pool of the running event loop."""
        self.check_use()
        self._forget_after_fork()
        deadline = deadline or self._deadline()
        if not self._checked:
            await in_thread(lambda: self.ensure_ready(deadline))
        loop = running_loop()
        pool = self._async_pools.get(loop)
        if pool is None:
            self._close_pools_of_closed_loops()
            pool = self._async_pools[loop] = LoopPool(self.dsn, self._pool_size, self.switchovers)
        async with pool.connection(_wait_for_connection(deadline)) as connection:
            connection.patience = self.call_timeout
            try:
                yield connection
            except psycopg.Error as error:
                if self._notice_switchover(connection, error):
                    await connection.close()
                raise

    def _notice_switchover(self, connection: AnyConnection, error: psycopg.Error) -> bool:
        """Count a switchover if the error says that the server is read-only. Then the connection must be closed."""
        only_transaction = self._is_for_handlers and is_read_only_now(connection) is False
        return not only_transaction and self.switchovers.notice(error)

    def _close_pools_of_closed_loops(self) -> None:
        """Without this, a script that calls `asyncio.run` repeatedly would leak a connection each time."""
        for loop in [loop for loop in self._async_pools if loop.is_closed()]:
            self._async_pools.pop(loop).finish()

    def _forget_after_fork(self) -> None:
        """A forked child must not use its parent's connections or locks; it opens its own."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self.address.forget_after_fork()
            self._lock = threading.Lock()
            self._checking = threading.Lock()
            self.switchovers = Switchovers()
            self._pool = None
            self._async_pools.clear()

    @contextmanager
    def explaining(self, deadline: Deadline | None = None) -> Generator[None]:
        """Re-raise with a hint: permanent errors, errors of Stepwell's own functions, and an unreachable server."""
        try:
            yield
        except psycopg.Error as error:
            if has_a_hint(error):
                raise explain(_with_limit(error, deadline or self._deadline()), self.dsn) from error
            raise

    @asynccontextmanager
    async def aexplaining(self, deadline: Deadline | None = None) -> AsyncGenerator[None]:
        try:
            yield
        except psycopg.Error as error:
            if has_a_hint(error):
                raise await aexplain(_with_limit(error, deadline or self._deadline()), self.dsn) from error
            raise

    def _deadline(self, within: float | None = None) -> Deadline:
        """The deadline of a call that begins now, with a limit of its own or by `call_timeout`."""
        return Deadline(within or self.call_timeout, is_call_timeout=not within)

    async def answer_of(self, submit: Callable[[Item], asyncio.Future[Row]], item: Item) -> Row:
        """Submit an item that may wait behind the calls of others, and wait for its answer by `call_timeout`."""
        if not self._checked:
            await in_thread(self.ensure_ready)
        limit = self.call_timeout
        if limit is None:
            return await submit(item)
        try:
            # A little longer than a call's own limit: the call's own error says more.
            return await answer_within(submit(item), limit + _TURN)
        except Overdue:
            raise explain(Unanswered(limit), self.dsn) from None

    def fetch(self, query: Query[Row], within: float | None = None) -> list[Row]:
        """Run a query on a pooled connection, `within` so many seconds, by default `call_timeout`. It runs again after
        an error that another try may fix, such as a deadlock, and after a lost connection if the query is
        repeatable."""
        deadline = self._deadline(within)
        with self.explaining(deadline):
            for pause in _TRIES:
                try:
                    with self.connection(deadline) as connection:
                        connection.patience = deadline.patience
                        rows = fetch(connection, query)
                        refuse_stale_answer(connection, query)
                        return rows
                except psycopg.Error as error:
                    time.sleep(pause_or_raise(error, pause, deadline, repeatable=query.repeatable))
        raise AssertionError

    async def afetch(self, query: Query[Row], within: float | None = None) -> list[Row]:
        deadline = self._deadline(within)
        async with self.aexplaining(deadline):
            for pause in _TRIES:
                try:
                    async with self.aconnection(deadline) as connection:
                        connection.patience = deadline.patience
                        rows = await afetch(connection, query)
                        refuse_stale_answer(connection, query)
                        return rows
                except psycopg.Error as error:
                    await asyncio.sleep(pause_or_raise(error, pause, deadline, repeatable=query.repeatable))
        raise AssertionError

    def fetch_each(self, queries: Iterable[Query[Row]]) -> list[Row]:
        """Run queries in one transaction and one pipeline: Postgres works on one while `queries` yields the next. A
        list of queries runs again as in `fetch`; another iterable cannot be read twice, so it runs once."""
        with self.explaining():
            for pause in _TRIES if isinstance(queries, list) else _TRIES[-1:]:
                try:
                    with self.connection() as connection:
                        return fetch_each(connection, queries)
                except psycopg.Error as error:
                    time.sleep(pause_or_raise(error, pause, Deadline(None), repeatable=False))
        raise AssertionError

    async def afetch_each(self, queries: Iterable[Query[Row]]) -> list[Row]:
        async with self.aexplaining():
            for pause in _TRIES if isinstance(queries, list) else _TRIES[-1:]:
                try:
                    async with self.aconnection() as connection:
                        return await afetch_each(connection, queries)
                except psycopg.Error as error:
                    await asyncio.sleep(pause_or_raise(error, pause, Deadline(None), repeatable=False))
        raise AssertionError

    def close(self) -> None:
        """Close the pool of sync code, and stop using the embedded Postgres."""
        with self._lock:
            if self._pool is not None:
                self._pool.close()
                self._pool = None
            self._checked = False
            self.address.leave()

    async def aclose(self) -> None:
        """Close the running loop's pool, and everything that `close` closes."""
        pool = self._async_pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            pool.close()
        await in_thread(self.close)


def _with_limit(error: psycopg.Error, deadline: Deadline) -> psycopg.Error:
    """Return the error with the limit of the whole call, not the part of it that was left at the end."""
    if isinstance(error, Unanswered | NoConnection) and deadline.limit is not None:
        error.limit, error.is_call_timeout = deadline.limit, deadline.is_call_timeout
    return error


def _wait_for_connection(deadline: Deadline) -> float:
    return _DEFAULT_WAIT if deadline.left is None else deadline.left
