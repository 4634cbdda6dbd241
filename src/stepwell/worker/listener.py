"""Turn notifications into wake-ups, and notice when they do not arrive.

A notification is a hint: the worker looks up what it says. The listener sends itself one every half minute. If that
does not arrive, as behind a pooler in transaction mode, the worker polls more often until one does.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from stepwell.postgres import queries
from stepwell.postgres.connection import aopen_within, is_read_only_now, sever
from stepwell.postgres.database import Database
from stepwell.postgres.errors import is_permanent, is_read_only_error
from stepwell.postgres.hints import aexplain
from stepwell.postgres.queries.claims import Position
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.worker import ListenerDeaf, ListenerHears
from stepwell.worker.claiming.ready_ranges import ReadyRange
from stepwell.worker.worker_connection import WorkerConnection

_TEST_EVERY = 30.0
_TEST_PATIENCE = 2.0
_CHANNELS = (
    "stepwell_ready_at",
    "stepwell_due",
    "stepwell_tick",
    "stepwell_cancel",
    "stepwell_control",
    "stepwell_blocked",
    "stepwell_bulk",
)

# Anybody may notify: a payload of another form is ignored.
_READY_AT = re.compile(r"(-?[0-9]{1,5}) (-?[0-9]{1,5}) (-?[0-9]{1,18}) (.{1,200})", re.DOTALL | re.ASCII)
_KEYS = msgspec.json.Decoder(list[str])


@dataclass(frozen=True, slots=True)
class ListenerCallbacks:
    """The function to call for each kind of notification."""

    ready: Callable[[], None]
    """Jobs may be ready in any queue."""
    ready_at: Callable[[str, ReadyRange], None]
    """Called with a queue's name, as the notification says: it may not exist."""
    due: Callable[[float], None]
    tick: Callable[[], None]
    blocked: Callable[[list[str]], None]
    """Called with the keys of limits and rates in whose lines jobs wait; an empty list: any."""
    bulk: Callable[[], None]
    """A bulk operation was started."""
    cancel: Callable[[str], None]
    control: Callable[[], None]
    hearing: Callable[[bool], None]


class Listener:
    """Listens on a connection of its own."""

    def __init__(
        self, database: Database, sender: WorkerConnection, events: EventBus, callbacks: ListenerCallbacks
    ) -> None:
        self._database = database
        self._sender = sender
        self._events = events
        self._callbacks = callbacks
        self._channel = f"stepwell_self_{secrets.token_hex(8)}"
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._listening = asyncio.Event()
        self._heard = asyncio.Event()
        self._hears = True

    @property
    def hears(self) -> bool:
        """Whether notifications arrive, as far as is known."""
        return self._hears and self._listening.is_set()

    async def run(self) -> None:
        while True:
            try:
                connection = await aopen_within(self._database.dsn, None)
                self._connection = connection
                async with connection:
                    for channel in _CHANNELS:
                        await connection.execute(_listen(channel))
                    await connection.execute(_listen(self._channel))
                    if is_read_only_now(connection):
                        # A standby notifies nobody: most likely another server takes over.
                        raise psycopg.errors.ReadOnlySqlTransaction("the server takes no writes")
                    self._listening.set()
                    # Notifications that were sent before are lost: look for what they announced.
                    self._callbacks.ready()
                    self._callbacks.due(0)
                    self._callbacks.blocked([])
                    self._callbacks.bulk()
                    self._callbacks.tick()
                    self._callbacks.control()
                    async for note in connection.notifies():
                        self._hear(note.channel, note.payload)
            except (psycopg.Error, OSError) as error:
                self._listening.clear()
                if is_permanent(error):
                    raise await aexplain(error, self._database.dsn) from error
                await asyncio.sleep(1.0 if is_read_only_error(error) else 0.2)

    async def test(self) -> None:
        """Send a notification to this listener every half minute, until cancelled."""
        missed = False
        while True:
            # A listener that is not connected is not deaf: the connection may not be up yet, or was cut.
            await self._listening.wait()
            self._heard.clear()
            if not await self._send():
                self._found(hears=False)
                await asyncio.sleep(_TEST_PATIENCE)
                continue
            try:
                await asyncio.wait_for(self._heard.wait(), _TEST_PATIENCE)
            except TimeoutError:
                if self._listening.is_set():
                    # Once may be a connection that died unnoticed: listen on another. Twice is deaf.
                    if missed:
                        self._found(hears=False)
                    missed = True
                    self.reconnect()
                continue
            missed = False
            self._found(hears=True)
            await asyncio.sleep(_TEST_EVERY)

    async def _send(self) -> bool:
        """Notify this listener. False: the queue of notifications fills up behind a session that does not read them."""
        try:
            return bool(await self._sender.insist(queries.fleet.notify_unless_full(self._channel)))
        except psycopg.Error:  # or the queue is full
            return False

    def reconnect(self) -> None:
        """Listen on another connection: this one gives no answer, or leads to a standby, which notifies nobody."""
        if self._connection is not None:
            self._listening.clear()
            sever(self._connection)

    def _found(self, *, hears: bool) -> None:
        if hears != self._hears:
            self._hears = hears
            self._events.emit(ListenerHears() if hears else ListenerDeaf())
            self._callbacks.hearing(hears)

    def _hear(self, channel: str, payload: str) -> None:
        match channel:
            case "stepwell_ready_at":
                if (told := _READY_AT.fullmatch(payload)) is not None:
                    rank, last_rank, run_at = int(told[1]), int(told[2]), int(told[3])
                    self._callbacks.ready_at(told[4], ReadyRange(Position(rank, run_at), last_rank))
            case "stepwell_due":
                if payload.isdecimal() and len(payload) < 16:
                    self._callbacks.due(int(payload) / 1000)
            case "stepwell_tick":
                self._callbacks.tick()
            case "stepwell_control":
                self._callbacks.control()
            case "stepwell_blocked":
                with contextlib.suppress(msgspec.DecodeError):
                    self._callbacks.blocked(_KEYS.decode(payload))
            case "stepwell_bulk":
                self._callbacks.bulk()
            case "stepwell_cancel":
                self._callbacks.cancel(payload)
            case _:
                self._heard.set()


def _listen(channel: str) -> sql.Composed:
    return sql.SQL("listen {}").format(sql.Identifier(channel))
