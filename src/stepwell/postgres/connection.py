"""Connections: their settings, opening one with a time limit, severing one, and what one knows without a round trip."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Generator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg.pq import PipelineStatus

from stepwell.postgres.errors import NoConnection, Unanswered

# The time for the statement of a call that got its connection only at the last moment.
_LEAST = 1.0


class Deadline:
    """A deadline in `limit` seconds; None: there is none. `is_call_timeout`: `App(call_timeout=...)` has set it."""

    __slots__ = ("_at", "is_call_timeout", "limit")
    _at: float | None

    def __init__(self, limit: float | None, *, is_call_timeout: bool = False) -> None:
        self.limit = limit
        self.is_call_timeout = is_call_timeout
        self.restart()

    def restart(self) -> None:
        """Start counting again: the time until now was not part of the call."""
        self._at = None if self.limit is None else time.monotonic() + self.limit

    @property
    def left(self) -> float | None:
        return None if self._at is None else max(self._at - time.monotonic(), 0.0)

    @property
    def patience(self) -> float | None:
        """How long a statement that is sent now may go unanswered. Never so short that every answer would be late."""
        return None if self.limit is None else max(self.left or 0.0, min(_LEAST, self.limit))


T = TypeVar("T")

# Every call is one statement. None is prepared: a pooler in transaction mode would lose it, and almost all planning
# happens inside the functions (no difference in speed could be measured).
CONNECTION: Mapping[str, Any] = {"autocommit": True, "prepare_threshold": None}


class SyncConnection(psycopg.Connection[Any]):
    """A connection that is closed, with `Unanswered` raised, once the server has been silent for `patience` seconds.
    The server need not finish in that time, but it must accept or send a byte. None: there is no limit."""

    patience: float | None = None
    opened_read_only = False

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        if self.patience is None:
            return super().wait(gen, *args, **options)
        try:
            return super().wait(_heard(gen, self.patience), *args, **options)
        except Unanswered:
            self.close()
            raise

    def __del__(self, *_: object) -> None:
        """Suppress psycopg's warning: an app need not be closed; its connections end with the program."""


class AsyncConnection(psycopg.AsyncConnection[Any]):
    """The same as `SyncConnection`, for async code."""

    patience: float | None = None
    opened_read_only = False

    async def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        if self.patience is None:
            return await super().wait(gen, *args, **options)
        try:
            return await super().wait(_heard(gen, self.patience), *args, **options)
        except Unanswered:
            await self.close()
            raise

    def __del__(self, *_: object) -> None: ...


OwnConnection = TypeVar("OwnConnection", SyncConnection, AsyncConnection)
AnyConnection: TypeAlias = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


def _heard(gen: Generator[Any, Any, T], patience: float) -> Generator[Any, Any, T]:
    """Wrap psycopg's I/O generator, which psycopg resumes ten times a second even when nothing is ready."""
    silent_from = time.monotonic()
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                silent_from = time.monotonic()
            elif time.monotonic() - silent_from > patience:
                raise Unanswered(patience)
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


def open_within(dsn: str, limit: float | None) -> SyncConnection:
    """Open a connection. Raises `NoConnection` after `limit` seconds. A thread opens it, because resolving a name, or
    trying several addresses, may take any time."""
    if limit is None:
        return _noting_mode(SyncConnection.connect(dsn, **CONNECTION))
    opened: Future[SyncConnection] = Future()

    def connect() -> None:
        try:
            connection = _noting_mode(SyncConnection.connect(dsn, **CONNECTION))
        except BaseException as error:
            if opened.set_running_or_notify_cancel():
                opened.set_exception(error)
            return
        if opened.set_running_or_notify_cancel():
            opened.set_result(connection)
        else:
            connection.close()

    threading.Thread(target=connect, name="stepwell-connect", daemon=True).start()
    try:
        return opened.result(limit)
    except TimeoutError:
        if opened.cancel():
            raise _not_opened(limit) from None
        return opened.result()
    except BaseException:
        opened.cancel()
        raise


async def aopen_within(dsn: str, limit: float | None) -> AsyncConnection:
    timer = asyncio.timeout(limit)
    try:
        async with timer:
            return _noting_mode(await AsyncConnection.connect(dsn, **CONNECTION))
    except TimeoutError:
        if timer.expired():
            raise _not_opened(limit or 0) from None
        raise


def _noting_mode(connection: OwnConnection) -> OwnConnection:
    connection.opened_read_only = bool(is_read_only_now(connection))
    return connection


def _not_opened(limit: float) -> NoConnection:
    return NoConnection(limit, "the server did not answer when a connection was opened")


def is_read_only_now(connection: AnyConnection) -> bool | None:
    """Whether the server reported, with its last answer, that new transactions are read-only. None: unknown, as behind
    some poolers, or in a pipeline."""
    if connection.closed or in_pipeline(connection):
        return None
    reported = [connection.info.parameter_status(name) for name in ("in_hot_standby", "default_transaction_read_only")]
    return True if "on" in reported else None if None in reported else False


def became_read_only(connection: SyncConnection | AsyncConnection) -> bool:
    """Whether the server took writes when the connection was opened and no longer does, so its answers may be stale."""
    return bool(is_read_only_now(connection)) and not connection.opened_read_only


def has_input(connection: AnyConnection) -> bool:
    """Whether an idle connection has something to read, which is most likely its end."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def pipeline(connection: psycopg.Connection[Any]) -> AbstractContextManager[Any]:
    """Send statements without waiting for answers. With a libpq before 14, each waits for the one before."""
    return connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext()


def apipeline(connection: psycopg.AsyncConnection[Any]) -> AbstractAsyncContextManager[Any]:
    return connection.pipeline() if psycopg.AsyncPipeline.is_supported() else nullcontext()


def in_pipeline(connection: AnyConnection) -> bool:
    """Whether it is in a pipeline, as after a cancel at the wrong moment: then further statements do not commit."""
    return connection.pgconn.pipeline_status != PipelineStatus.OFF


def sever(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Make every thread or task that waits on the connection fail at once."""
    with contextlib.suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
