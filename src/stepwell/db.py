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
from psycopg_pool import ConnectionPool, PoolTimeout

from stepwell import migrate
from stepwell.advice import aexplain, explain
from stepwell.aside import aside
from stepwell.connection import CONNECTION, apipeline, in_pipeline, pipeline
from stepwell.database_url import to_url
from stepwell.embedded import EmbeddedPostgres, embedded_path, is_embedded
from stepwell.errors import ConfigError, EmbeddedError
from stepwell.pool import LoopPool, new_pool
from stepwell.queries import Query
from stepwell.trouble import is_hopeless, is_lost, is_rolled_back, is_transient, own

Row = TypeVar("Row")

# Before each further try. Two that deadlocked meet again unless one of them is later.
_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)

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
    # Who has set lock_timeout does not want to wait that long several times.
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return False
    return is_rolled_back(error) or (repeatable and is_lost(error) and not is_hopeless(error))


def _is_explained(error: Exception) -> bool:
    return is_hopeless(error) or is_transient(error) or own(error) is not None


class Database:
    """Where the app's Postgres is, and the pools to it. Nothing is opened before it is needed."""

    def __init__(self, url: str | None, *, pool_size: int, create: bool = True) -> None:
        """Unless it may `create` one, an embedded Postgres must be there."""
        self._url = url
        self._create = create
        self._pool_size = pool_size
        self._lock = threading.RLock()
        self._dsn: str | None = None
        self._named: dict[str, Any] = {}
        self._embedded: EmbeddedPostgres | None = None
        self._checked = False
        self._pool: ConnectionPool[psycopg.Connection[Any]] | None = None
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

    def with_pool_of(self, size: int) -> Database:
        """The same database, known to be ready, with pools of another size."""
        other = Database(self.dsn, pool_size=size)
        other._checked = self._checked
        return other

    def connect(self) -> psycopg.Connection[Any]:
        """A connection of one's own, in autocommit, not from the pool."""
        try:
            return psycopg.connect(self.dsn, **CONNECTION)
        except psycopg.Error as error:
            raise explain(error, self.dsn) from error

    async def aconnect(self) -> psycopg.AsyncConnection[Any]:
        """The same for async code, with Postgres' own error."""
        return await psycopg.AsyncConnection.connect(self.dsn, **CONNECTION)

    def ensure_ready(self) -> None:
        """Check, once, that the database is there and its schema fits; an embedded one is migrated instead."""
        with self._lock:
            if self._checked:
                return
            with self.connect() as connection:
                if self._embedded is not None:
                    migrate.migrate(connection)
                migrate.check(connection)
            self._checked = True

    @contextmanager
    def connection(self, within: float | None = None) -> Generator[psycopg.Connection[Any]]:
        """A connection from the pool, in autocommit; `within` so many seconds, not the half minute that is usual."""
        self._forget_after_fork()
        self.ensure_ready()
        with self._lock:
            if self._pool is None:
                self._pool = new_pool(self.dsn, self._pool_size)
            pool = self._pool
        with pool.connection(within) as connection:
            yield connection

    @asynccontextmanager
    async def aconnection(self, within: float | None = None) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
        """A connection from the running loop's pool, in autocommit."""
        self._forget_after_fork()
        if not self._checked:
            await aside(self.ensure_ready)
        loop = asyncio.get_running_loop()
        pool = self._async_pools.get(loop)
        if pool is None:
            self._close_pools_of_closed_loops()
            pool = self._async_pools[loop] = LoopPool(self.dsn, self._pool_size)
        await pool.open()
        async with pool.pool.connection(within) as connection:
            yield connection

    def _close_pools_of_closed_loops(self) -> None:
        """A script that calls `asyncio.run` again and again must not leave a connection behind each time."""
        for loop in [loop for loop in self._async_pools if loop.is_closed()]:
            self._async_pools.pop(loop).finish()

    def _forget_after_fork(self) -> None:
        """A forked child must not use its parent's connections; it opens its own."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._lock = threading.RLock()
            self._pool = None
            self._async_pools.clear()

    @contextmanager
    def explaining(self) -> Generator[None]:
        """Within this, what only a person can mend, what our own functions refuse, and the server being away is
        explained."""
        try:
            yield
        except (psycopg.Error, PoolTimeout) as error:
            if _is_explained(error):
                raise explain(error, self.dsn) from error
            raise

    @asynccontextmanager
    async def aexplaining(self) -> AsyncGenerator[None]:
        """The same for async code."""
        try:
            yield
        except (psycopg.Error, PoolTimeout) as error:
            if _is_explained(error):
                raise await aexplain(error, self.dsn) from error
            raise

    def fetch(self, query: Query[Row], within: float | None = None) -> list[Row]:
        """Run a query on a pooled connection, its errors explained.

        It is run again after what another try heals: a deadlock, say; or, if it may be repeated, a lost connection.
        """
        with self.explaining():
            for pause in _PAUSES:
                try:
                    with self.connection(within) as connection:
                        return fetch(connection, query)
                except psycopg.Error as error:
                    if not _heals(error, repeatable=query.repeatable):
                        raise
                time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
            with self.connection(within) as connection:
                return fetch(connection, query)

    async def afetch(self, query: Query[Row], within: float | None = None) -> list[Row]:
        """The same for async code."""
        async with self.aexplaining():
            for pause in _PAUSES:
                try:
                    async with self.aconnection(within) as connection:
                        return await afetch(connection, query)
                except psycopg.Error as error:
                    if not _heals(error, repeatable=query.repeatable):
                        raise
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
            async with self.aconnection(within) as connection:
                return await afetch(connection, query)

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
            await pool.pool.close()
        await aside(self.close)

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
        # A peer that vanished without a word is noticed in half a minute, not in the quarter of an hour that TCP takes.
        defaults = {
            "application_name": "stepwell",
            "connect_timeout": "10",
            "keepalives_idle": "15",
            "keepalives_interval": "5",
            "keepalives_count": "3",
            "tcp_user_timeout": "30000",
        }
        return make_conninfo(dsn, **{key: value for key, value in defaults.items() if key not in given})
