"""Do a duty of upkeep: bounded in time, and if it fails, said once and tried again, while the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import psycopg

from stepwell.postgres.errors import in_short, is_missing, is_permanent
from stepwell.postgres.hints import aexplain
from stepwell.postgres.queries import Query
from stepwell.telemetry.events import Events, UpkeepFailed
from stepwell.worker.link import Link

Row = TypeVar("Row")

_LONGEST = 10.0


class Duties:
    """Duties that share a link, one at a time."""

    def __init__(self, link: Link, dsn: Callable[[], str], events: Events) -> None:
        self._link = link
        self._dsn = dsn
        self._events = events
        self._failing: set[str] = set()
        self._free = asyncio.Lock()

    async def do(self, duty: str, query: Query[Row]) -> list[Row] | None:
        """Run a query for a duty, which the name tells; None: it failed. Raises what only a person can mend."""
        try:
            async with self._free, asyncio.timeout(_LONGEST):
                rows = await self._link.fetch(query)
        except TimeoutError:
            self.failed(duty, f"it took longer than {_LONGEST:g} s")
            return None
        except (psycopg.Error, OSError) as error:
            if is_permanent(error) and (duty in self._failing or not is_missing(error)):
                raise await aexplain(error, self._dsn()) from error
            self.failed(duty, in_short(error))
            return None
        self.recovered(duty)
        return rows

    def recovered(self, duty: str) -> None:
        """A duty was done: should it fail again, that is news."""
        self._failing.discard(duty)

    def failed(self, duty: str, why: str) -> None:
        """Say that a duty failed, unless it did before."""
        if duty not in self._failing:
            self._failing.add(duty)
            self._events.emit(UpkeepFailed(duty, why))
