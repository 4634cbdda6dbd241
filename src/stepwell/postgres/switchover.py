"""Notice that the server no longer takes writes, so that no connection to it is kept.

A server that hands over to another may keep its connections open. Then every write on them fails, no connection ever
ends by itself, and those that only listen or read do not even fail.
"""

from __future__ import annotations

import threading
import time
import weakref
from math import inf
from typing import Protocol

from stepwell.postgres.errors import is_read_only_error

# All connections notice within a moment. They count as one switchover, so that newer connections are not dropped.
_MOMENT = 0.5


class KeepsConnections(Protocol):
    """An owner of idle connections."""

    def drop_old(self) -> None:
        """Close the connections that are older than the last switchover. May be called from any thread."""
        ...


class Switchovers:
    """Counts how often the server was found to take no writes. The owner of a connection remembers the `count` at which
    it was opened, and replaces it once the count is higher. Safe to use from any thread."""

    def __init__(self) -> None:
        self.count = 0
        self._noticed_at = -inf
        self._keepers: weakref.WeakSet[KeepsConnections] = weakref.WeakSet()
        self._lock = threading.Lock()

    def register(self, keeper: KeepsConnections) -> None:
        with self._lock:
            self._keepers.add(keeper)

    def notice(self, error: BaseException) -> bool:
        """Count a switchover if the error says that the server takes no writes. Then its connection must be closed."""
        if not is_read_only_error(error):
            return False
        with self._lock:
            now = time.monotonic()
            if now - self._noticed_at <= _MOMENT:
                return True
            self._noticed_at = now
            self.count += 1
            keepers = list(self._keepers)
        for keeper in keepers:
            keeper.drop_old()
        return True
