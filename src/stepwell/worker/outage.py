"""Log once when a worker loses its database and once when it is back, however many of its parts notice."""

from __future__ import annotations

from stepwell.postgres.errors import in_short
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.worker import DatabaseBack, DatabaseLost


class Outage:
    """The parts of a worker that cannot use the database now. An outage lasts until each of them can again."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._parts: set[object] = set()

    def begin(self, part: object, name: str, error: BaseException) -> None:
        """A part cannot use the database. The first one to notice logs it."""
        if not self._parts:
            self._events.emit(DatabaseLost(name, in_short(error)))
        self._parts.add(part)

    def end(self, part: object) -> None:
        """The database has answered a part. The last one to recover logs it."""
        if part in self._parts:
            self._parts.discard(part)
            if not self._parts:
                self._events.emit(DatabaseBack())

    def forget(self, part: object) -> None:
        """A part asks no more: it is not waited for."""
        self._parts.discard(part)
