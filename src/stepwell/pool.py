"""Pools of connections: one for sync code, and one for each event loop.

A pooled connection that died while it lay idle, or that somebody left in a pipeline, is replaced before it is lent. The
look costs no round trip.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Any, TypeAlias

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from stepwell.connection import CONNECTION, in_pipeline, stirs

AsyncPool: TypeAlias = AsyncConnectionPool[psycopg.AsyncConnection[Any]]


def new_pool(dsn: str, size: int) -> ConnectionPool[psycopg.Connection[Any]]:
    """A pool for sync code, open."""
    return ConnectionPool(
        dsn, kwargs=dict(CONNECTION), min_size=0, max_size=size, check=_check, open=True, name="stepwell"
    )


class LoopPool:
    """The pool of one event loop, and its connections, to be ended also when that loop is no more."""

    def __init__(self, dsn: str, size: int) -> None:
        self._connections: weakref.WeakSet[psycopg.AsyncConnection[Any]] = weakref.WeakSet()
        self._opening: asyncio.Future[None] | None = None
        self.pool: AsyncPool = AsyncConnectionPool(
            dsn,
            kwargs=dict(CONNECTION),
            min_size=0,
            max_size=size,
            configure=self._remember,
            check=_acheck,
            open=False,
            name="stepwell",
        )

    async def open(self) -> None:
        if self._opening is None:
            self._opening = asyncio.ensure_future(self.pool.open())
        await asyncio.shield(self._opening)

    def finish(self) -> None:
        for connection in self._connections:
            connection.pgconn.finish()

    async def _remember(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connections.add(connection)


def _check(connection: psycopg.Connection[Any]) -> None:
    _refuse_pipeline(connection)
    if stirs(connection):
        connection.execute("select 1")


async def _acheck(connection: psycopg.AsyncConnection[Any]) -> None:
    _refuse_pipeline(connection)
    if stirs(connection):
        await connection.execute("select 1")


def _refuse_pipeline(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    # Ours are closed at once; a handler may have left the connection it was lent in one of its own.
    if in_pipeline(connection):
        raise psycopg.OperationalError("left in a pipeline")
