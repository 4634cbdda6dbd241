"""Wait for the database when a worker starts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

from stepwell.errors import StepwellError
from stepwell.postgres.database import Database
from stepwell.postgres.errors import in_short, is_transient, where
from stepwell.postgres.threads import in_thread
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.worker import DatabaseAwaited

T = TypeVar("T")

_PAUSE = 0.5


async def once_database_is_there(
    call: Callable[[], T], database: Database, events: EventBus, stop_asked: asyncio.Event, *, wait: bool
) -> T | None:
    """Make a blocking call, in a thread, until the database is there for it. None: the worker was asked to stop. Unless
    it may `wait`, and for permanent errors, it raises."""
    logged = False
    stopping = asyncio.ensure_future(stop_asked.wait())
    try:
        while True:
            made = asyncio.ensure_future(in_thread(call))
            try:
                await asyncio.wait([made, stopping], return_when=asyncio.FIRST_COMPLETED)
                if not made.done():
                    return None
                return made.result()
            except StepwellError as error:
                cause = error.__cause__
                if not wait or cause is None or not is_transient(cause):
                    raise
                if not logged:
                    logged = True
                    events.emit(DatabaseAwaited(where(database.dsn), in_short(cause)))
            finally:
                # It may fail a moment later, when nobody waits for it.
                made.add_done_callback(lambda made: made.cancelled() or made.exception())
                made.cancel()
            await asyncio.wait([stopping], timeout=_PAUSE * random.uniform(0.5, 1))  # noqa: S311
            if stopping.done():
                return None
    finally:
        stopping.cancel()
