"""Notice that the server takes no writes any more, so that no connection to it is kept.

A server that hands over to another may keep its sessions: then each statement that writes fails, and no connection ever
ends by itself. Those that only listen or read do not even fail.
"""

from __future__ import annotations

import threading
import time
import weakref
from math import inf
from typing import Protocol

from stepwell.postgres.errors import is_read_only_error

# All connections find out within a moment: that is one switchover, and what was opened since is not dropped again.
_MOMENT = 0.5


class KeepsConnections(Protocol):
    """Somebody who keeps connections that nobody uses."""

    def drop_old(self) -> None:
        """Close those that are older than the last switchover. It may be called from any thread."""
        ...


class Switchovers:
    """Counts how often the server was found to take no writes. Whoever keeps a connection remembers the `count` at
    which it was opened, and opens another once the count is higher. Safe to use from any thread."""

    def __init__(self) -> None:
        self.count = 0
        self._noticed_at = -inf
        self._keepers: weakref.WeakSet[KeepsConnections] = weakref.WeakSet()
        self._lock = threading.Lock()

    def register(self, keeper: KeepsConnections) -> None:
        """Have somebody drop connections at every switchover."""
        with self._lock:
            self._keepers.add(keeper)

    def notice(self, error: BaseException) -> bool:
        """Count, if the error says that the server takes no writes: then its connection is to be closed."""
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
