"""What handlers write down of their runs, through connections of their own: a witness the worker has no hand in.

Part of the worker program. `audit.py` holds the tables and reads them.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg

from stepwell import Context


class Stopped(Exception):
    """Raised by a plain handler that was asked to stop."""


class Entry(NamedTuple):
    """A line of the ledger. `run` is new for each run, so one epoch that ran twice shows."""

    job_id: str
    epoch: int
    attempt: int
    run: str
    phase: str


class Ledger:
    """Writes entries and comes back only when they are committed, however long the database is away."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        self._async_connection: psycopg.AsyncConnection[Any] | None = None
        self._waiting: list[tuple[Entry, asyncio.Future[None]]] = []
        self._sender: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def arun(self, ctx: Context) -> AsyncGenerator[None]:
        """Witness a run of a coroutine: its start, and its end, stop or error."""
        run = uuid4().hex
        try:
            await self._write(_entry(ctx, run, "start"))
            yield
            await self._write(_entry(ctx, run, "end"))
        except asyncio.CancelledError:
            await self._write(_entry(ctx, run, "stopped"))
            raise
        except BaseException:
            await self._write(_entry(ctx, run, "raised"))
            raise

    @contextmanager
    def run(self, ctx: Context) -> Generator[None]:
        """The same for a plain function."""
        run = uuid4().hex
        try:
            self._send(_entry(ctx, run, "start"))
            yield
            self._send(_entry(ctx, run, "end"))
        except Stopped:
            self._send(_entry(ctx, run, "stopped"))
            raise
        except BaseException:
            self._send(_entry(ctx, run, "raised"))
            raise

    async def close(self) -> None:
        if self._async_connection is not None:
            await self._async_connection.close()
        if self._connection is not None:
            self._connection.close()

    async def _write(self, entry: Entry) -> None:
        """Write an entry, together with whatever comes in while the last batch is under way."""
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, written))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._write_all())
        await written

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            await self._asend([entry for entry, _ in batch])
            for _, written in batch:
                if not written.done():
                    written.set_result(None)

    async def _asend(self, entries: list[Entry]) -> None:
        while True:
            try:
                if self._async_connection is None or self._async_connection.closed:
                    self._async_connection = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)
                await self._async_connection.execute(_RECORD, _params(entries))
                return
            except psycopg.OperationalError:
                await asyncio.sleep(0.05)

    def _send(self, entry: Entry) -> None:
        while True:
            try:
                with self._lock:
                    if self._connection is None or self._connection.closed:
                        self._connection = psycopg.connect(self._dsn, autocommit=True)
                    self._connection.execute(_RECORD, _params([entry]))
                    return
            except psycopg.OperationalError:
                time.sleep(0.05)


_RECORD = "select crash.record(%s::uuid[], %s::integer[], %s::integer[], %s::uuid[], %s::text[], %s::integer)"


def _entry(ctx: Context, run: str, phase: str) -> Entry:
    return Entry(ctx.id, ctx.epoch, ctx.attempt, run, phase)


def _params(entries: Sequence[Entry]) -> list[object]:
    return [*([entry[column] for entry in entries] for column in range(5)), os.getpid()]
