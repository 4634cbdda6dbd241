"""The only Postgres I/O outside the worker's own connections: find the database, open pools, run a query.

Queries are values, so sync and async are two small runners and not two libraries.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import threading
import time
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from difflib import get_close_matches
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import args_row

from stepwell.embedded import EmbeddedPostgres, embedded_path, is_embedded
from stepwell.errors import ConfigError, EmbeddedError
from stepwell.postgres import migrate
from stepwell.postgres.connection import (
    AnyConnection,
    AsyncConnection,
    SyncConnection,
    apipeline,
    became_read_only,
    in_pipeline,
    is_read_only_now,
    open_within,
    pipeline,
)
from stepwell.postgres.deadline import Deadline
from stepwell.postgres.errors import (
    NoConnection,
    Unanswered,
    is_lost,
    is_permanent,
    is_read_only_error,
    is_rolled_back,
    is_transient,
    stepwell_error,
)
from stepwell.postgres.hints import aexplain, explain
from stepwell.postgres.pool import LoopPool, SyncPool
from stepwell.postgres.queries import Query
from stepwell.postgres.switchover import Switchovers
from stepwell.postgres.threads import in_thread
from stepwell.postgres.url import to_url

Row = TypeVar("Row")

# Before each further try. Two that deadlocked meet again unless one of them is later.
_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)

# How long a caller without a limit of its own waits for a connection.
_USUAL_WAIT = 30.0
_TURN = 0.25

ENVIRONMENT = "STEPWELL_DATABASE_URL"


def fetch(connection: psycopg.Connection[Any], query: Query[Row]) -> list[Row]:
    """Run a query and return its rows."""
    with connection.cursor(row_factory=args_row(query.row)) as cursor:
        return cursor.execute(query.text, query.params).fetchall()


async def afetch(connection: psycopg.AsyncConnection[Any], query: Query[Row]) -> list[Row]:
    """Run a query and return its rows."""
    async with connection.cursor(row_factory=args_row(query.row)) as cursor:
        await cursor.execute(query.text, query.params)
        return await cursor.fetchall()


def _unless_lost(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], error: TypeError) -> Exception:
    """psycopg's pipeline may stumble over a connection that is lost at that moment: then the loss is the error."""
    return psycopg.OperationalError(f"the connection was lost ({error})") if connection.closed else error


def _heals(error: psycopg.Error, *, repeatable: bool) -> bool:
    # A caller that has set lock_timeout does not want to wait that long several times, nor for a silent server.
    if isinstance(error, psycopg.errors.LockNotAvailable | Unanswered):
        return False
    if is_rolled_back(error) or is_read_only_error(error):
        return True
    return repeatable and is_lost(error) and not is_permanent(error)


def _refuse_stale_answer(connection: SyncConnection | AsyncConnection, query: Query[Any]) -> None:
    """Refuse an answer of a server that has handed over to another: it does not know what happens there."""
    if query.repeatable and became_read_only(connection):
        raise psycopg.errors.ReadOnlySqlTransaction("the server has handed over to another")


def _is_explained(error: Exception) -> bool:
    return is_permanent(error) or is_transient(error) or stepwell_error(error) is not None


class Database:
    """Where the app's Postgres is, and the pools to it. Nothing is opened before it is needed."""

    def __init__(
        self,
        url: str | None,
        *,
        pool_size: int,
        create: bool = True,
        call_timeout: float | None = None,
        switchovers: Switchovers | None = None,
    ) -> None:
        """Unless it may `create` one, an embedded Postgres must be there. A call waits `call_timeout` seconds for a
        connection and for a silent server; None: the usual time for the one, for ever for the other."""
        self._url = url
        self._create = create
        self._pool_size = pool_size
        self.call_timeout = call_timeout
        self.switchovers = switchovers or Switchovers()
        self._lock = threading.RLock()
        self._checking = threading.Lock()
        self._dsn: str | None = None
        self._named: dict[str, Any] = {}
        self._embedded: EmbeddedPostgres | None = None
        self._checked = False
        self._is_for_handlers = False
        self._pool: SyncPool | None = None
        self._async_pools: dict[asyncio.AbstractEventLoop, LoopPool] = {}
        self._process = os.getpid()

    @property
    def dsn(self) -> str:
        """The connection string; starts the embedded Postgres if that is the database."""
        with self._lock:
            if self._dsn is None:
                self._dsn = self._find()
            return self._dsn

    @property
    def url(self) -> str:
        """The database that `dsn` names, as a URL that other libraries read, without the settings that are ours."""
        with self._lock:
            _ = self.dsn
            return to_url(self._named)

    def with_pool_of(self, size: int, *, for_handlers: bool = False) -> Database:
        """The same database, known to be ready, with pools of another size and no limit for a call. `for_handlers`: a
        transaction may be read-only because its handler made it so, which says nothing about the server."""
        other = Database(self.dsn, pool_size=size, switchovers=self.switchovers)
        other._checked = self._checked
        other._is_for_handlers = for_handlers
        return other

    def connect(self) -> SyncConnection:
        """A connection of one's own, in autocommit, not from the pool."""
        try:
            connection = self._open(Deadline(self.call_timeout))
        except psycopg.Error as error:
            raise explain(self._with_limit(error), self.dsn) from error
        # The caller may keep it for long: opening it took nothing from the time for its statements.
        connection.patience = self.call_timeout
        return connection

    def _open(self, deadline: Deadline) -> SyncConnection:
        connection = open_within(self.dsn, deadline.left)
        connection.patience = deadline.patience
        return connection

    def ensure_ready(self, deadline: Deadline | None = None, *, wait: bool = True) -> None:
        """Check, once, that the database is there and its schema fits; an embedded one is migrated instead. While the
        database is away, `wait` for it until the deadline."""
        if self._checked:
            return
        deadline = deadline or Deadline(self.call_timeout)
        with self.explaining():
            # One of our own is started and migrated here, for as long as that takes.
            is_own = is_embedded(self._url or os.environ.get(ENVIRONMENT) or "")
            limit = -1 if deadline.left is None or is_own else deadline.left
            if not self._checking.acquire(timeout=limit):
                raise NoConnection(deadline.limit or 0, "the server did not answer when the schema was looked at")
            try:
                if not self._checked:
                    self._check(deadline, wait=wait)
            finally:
                self._checking.release()

    def _check(self, deadline: Deadline, *, wait: bool) -> None:
        if self.dsn and self._embedded is not None:
            with self._open(Deadline(None)) as connection:
                migrate.migrate(connection)
            deadline.restart()
        if wait:
            pool = SyncPool(self.dsn, 1, self.switchovers)
            try:
                with pool.connection(_USUAL_WAIT if deadline.left is None else deadline.left) as connection:
                    connection.patience = deadline.patience
                    migrate.check(connection)
            finally:
                pool.close()
        else:
            with self._open(deadline) as connection:
                migrate.check(connection)
        self._checked = True

    @contextmanager
    def connection(self, deadline: Deadline | None = None) -> Generator[SyncConnection]:
        """A connection from the pool, in autocommit, by the deadline."""
        self._forget_after_fork()
        deadline = deadline or Deadline(self.call_timeout)
        self.ensure_ready(deadline)
        with self._lock:
            if self._pool is None:
                self._pool = SyncPool(self.dsn, self._pool_size, self.switchovers)
            pool = self._pool
        with pool.connection(_USUAL_WAIT if deadline.left is None else deadline.left) as connection:
            connection.patience = self.call_timeout
            try:
                yield connection
            except psycopg.Error as error:
                if self._notice_switchover(connection, error):
                    connection.close()
                raise

    @asynccontextmanager
    async def aconnection(self, deadline: Deadline | None = None) -> AsyncGenerator[AsyncConnection]:
        """A connection from the running loop's pool, in autocommit, by the deadline."""
        self._forget_after_fork()
        deadline = deadline or Deadline(self.call_timeout)
        if not self._checked:
            await in_thread(lambda: self.ensure_ready(deadline))
        loop = asyncio.get_running_loop()
        pool = self._async_pools.get(loop)
        if pool is None:
            self._close_pools_of_closed_loops()
            pool = self._async_pools[loop] = LoopPool(self.dsn, self._pool_size, self.switchovers)
        async with pool.connection(_USUAL_WAIT if deadline.left is None else deadline.left) as connection:
            connection.patience = self.call_timeout
            try:
                yield connection
            except psycopg.Error as error:
                if self._notice_switchover(connection, error):
                    await connection.close()
                raise

    def _notice_switchover(self, connection: AnyConnection, error: psycopg.Error) -> bool:
        """Count a switchover, if the error says that the server is read-only: then the connection is to be closed. A
        handler may have made only its own transaction read-only."""
        only_transaction = self._is_for_handlers and is_read_only_now(connection) is False
        return not only_transaction and self.switchovers.notice(error)

    def _close_pools_of_closed_loops(self) -> None:
        """A script that calls `asyncio.run` again and again must not leave a connection behind each time."""
        for loop in [loop for loop in self._async_pools if loop.is_closed()]:
            self._async_pools.pop(loop).finish()

    def _forget_after_fork(self) -> None:
        """A forked child must not use its parent's connections; it opens its own."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._lock = threading.RLock()
            self._checking = threading.Lock()
            self.switchovers = Switchovers()
            self._pool = None
            self._async_pools.clear()

    @contextmanager
    def explaining(self) -> Generator[None]:
        """Within this, what only a person can mend, what our own functions refuse, and the server being away is
        explained."""
        try:
            yield
        except psycopg.Error as error:
            if _is_explained(error):
                raise explain(self._with_limit(error), self.dsn) from error
            raise

    @asynccontextmanager
    async def aexplaining(self) -> AsyncGenerator[None]:
        """The same for async code."""
        try:
            yield
        except psycopg.Error as error:
            if _is_explained(error):
                raise await aexplain(self._with_limit(error), self.dsn) from error
            raise

    def _with_limit(self, error: psycopg.Error) -> psycopg.Error:
        """The same error with the limit of the whole call, not the part of it that was left in the end."""
        if isinstance(error, Unanswered | NoConnection) and self.call_timeout is not None:
            error.limit = self.call_timeout
            if isinstance(error, NoConnection):
                error.is_call_timeout = True
        return error

    @asynccontextmanager
    async def alimited(self) -> AsyncGenerator[None]:
        """Within this, waiting for calls of others ends in time as well."""
        limit = self.call_timeout
        if not self._checked:
            await in_thread(self.ensure_ready)
        # A call's own end comes first, because it tells more.
        scope = asyncio.timeout(None if limit is None else limit + _TURN)
        try:
            async with scope:
                yield
        except TimeoutError:
            if limit is not None and scope.expired():
                raise explain(Unanswered(limit), self.dsn) from None
            raise

    def fetch(self, query: Query[Row], within: float | None = None) -> list[Row]:
        """Run a query on a pooled connection, its errors explained; `within` so many seconds, if not `call_timeout`.

        It is run again after what another try heals: a deadlock, say; or, if it may be repeated, a lost connection.
        """
        deadline = Deadline(within or self.call_timeout)
        with self.explaining():
            for pause in (*_PAUSES, None):
                try:
                    with self.connection(deadline) as connection:
                        connection.patience = deadline.patience
                        rows = fetch(connection, query)
                        _refuse_stale_answer(connection, query)
                        return rows
                except psycopg.Error as error:
                    if pause is None or deadline.is_over or not _heals(error, repeatable=query.repeatable):
                        raise
                    time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
        raise AssertionError

    async def afetch(self, query: Query[Row], within: float | None = None) -> list[Row]:
        """The same for async code."""
        deadline = Deadline(within or self.call_timeout)
        async with self.aexplaining():
            for pause in (*_PAUSES, None):
                try:
                    async with self.aconnection(deadline) as connection:
                        connection.patience = deadline.patience
                        rows = await afetch(connection, query)
                        _refuse_stale_answer(connection, query)
                        return rows
                except psycopg.Error as error:
                    if pause is None or deadline.is_over or not _heals(error, repeatable=query.repeatable):
                        raise
                    await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
        raise AssertionError

    def fetch_each(self, queries: Iterable[Query[Row]]) -> list[Row]:
        """Run queries in one transaction. Each is sent without waiting for the answer to the one before, and asked for
        only then: while Postgres works on one, the next can be made. A list of them is run again as by `fetch`."""
        with self.explaining():
            for pause in _PAUSES if isinstance(queries, list) else ():
                try:
                    return self._fetch_each(queries)
                except psycopg.Error as error:
                    if not _heals(error, repeatable=False):
                        raise
                time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
            return self._fetch_each(queries)

    def _fetch_each(self, queries: Iterable[Query[Row]]) -> list[Row]:
        with self.connection() as connection:
            try:
                with pipeline(connection), connection.transaction():
                    sent = [(query.row, connection.execute(query.text, query.params)) for query in queries]
                    return [row(*columns) for row, cursor in sent for columns in cursor]
            except TypeError as error:
                raise _unless_lost(connection, error) from error
            finally:
                if in_pipeline(connection):
                    connection.close()

    async def afetch_each(self, queries: Iterable[Query[Row]]) -> list[Row]:
        """The same for async code."""
        async with self.aexplaining():
            for pause in _PAUSES if isinstance(queries, list) else ():
                try:
                    return await self._afetch_each(queries)
                except psycopg.Error as error:
                    if not _heals(error, repeatable=False):
                        raise
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
            return await self._afetch_each(queries)

    async def _afetch_each(self, queries: Iterable[Query[Row]]) -> list[Row]:
        async with self.aconnection() as connection:
            try:
                async with apipeline(connection), connection.transaction():
                    sent = [(query.row, await connection.execute(query.text, query.params)) for query in queries]
                    return [row(*columns) for row, cursor in sent async for columns in cursor]
            except TypeError as error:
                raise _unless_lost(connection, error) from error
            finally:
                if in_pipeline(connection):
                    await connection.close()

    def revive(self) -> None:
        """Start the embedded Postgres again, should it have crashed. Any other is for others to look after."""
        with self._lock:
            if self._embedded is not None:
                with contextlib.suppress(EmbeddedError):
                    self._embedded.start()

    def adopt(self, other: Database) -> None:
        """Look after the embedded Postgres that another has started, and whose URL this one was given."""
        with self._lock:
            self._embedded = self._embedded or other._embedded

    @property
    def url_in_code(self) -> str | None:
        """What the app names as its database; None: it leaves that to the environment."""
        return self._url

    @property
    def is_embedded(self) -> bool:
        """Whether the database is a Postgres of our own."""
        return self._embedded is not None

    def close(self) -> None:
        """Close what was opened from sync code, and let go of the embedded Postgres."""
        with self._lock:
            if self._pool is not None:
                self._pool.close()
                self._pool = None
            self._checked = False
            if self._embedded is not None:
                self._embedded.stop()
                self._embedded = None
                self._dsn = None

    async def aclose(self) -> None:
        """Close the running loop's pool, and all that `close` closes."""
        pool = self._async_pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            pool.close()
        await in_thread(self.close)

    def _find(self) -> str:
        url = self._url or os.environ.get(ENVIRONMENT)
        if not url:
            raise ConfigError(
                'no database is configured. Give one in one of three ways: App("postgresql://user@host/database"); the '
                f'environment variable {ENVIRONMENT}, or --database on the command line; or App("embedded"), '
                "which starts a Postgres of its own, for development"
            )
        if is_embedded(url):
            embedded = EmbeddedPostgres(embedded_path(url))
            if not self._create and not embedded.exists:
                raise EmbeddedError(
                    f"there is no embedded Postgres in {embedded.path}: go to the directory of the program that uses "
                    'it, name its path, as in "embedded:PATH", or make one here with "stepwell migrate"'
                )
            self._embedded = embedded
            dsn = embedded.start()
        else:
            dsn = url
        try:
            self._named = given = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:
            # Without the text itself, which may hold a password, unless it is just a word.
            given = f"{url!r}" if re.fullmatch(r"[\w-]+", url) else "the database URL"
            if get_close_matches(url.partition(":")[0], ["embedded"]):
                raise ConfigError(f'{url!r} names no database: did you mean "embedded"?') from None
            raise ConfigError(
                f'{given} is not a URL that Postgres understands: write it as "postgresql://user:password@host/'
                'database" (no "+driver" after "postgresql"), as "host=... dbname=...", or as "embedded"'
            ) from None
        several = "," in str(given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST", ""))
        # A peer that vanished without a word is noticed in half a minute, not in the quarter of an hour that TCP takes.
        defaults = {
            "application_name": "stepwell",
            "connect_timeout": "3" if several else "10",
            "keepalives_idle": "15",
            "keepalives_interval": "5",
            "keepalives_count": "3",
            "tcp_user_timeout": "30000",
        }
        if several and "PGTARGETSESSIONATTRS" not in os.environ:
            # Of several servers only one takes writes, and which one may change.
            defaults["target_session_attrs"] = "read-write"
        return make_conninfo(dsn, **{key: value for key, value in defaults.items() if key not in given})
