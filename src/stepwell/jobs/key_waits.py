"""Wait for a unique key that an open transaction of somebody else has taken: it becomes taken or free when that ends.

Such an enqueue waits in short tries with pauses between them. If it waited in the database, it would keep a connection
of the pool and, in async code, all enqueues that are sent together with it.
"""

from __future__ import annotations

import time
from math import inf

from stepwell.errors import DatabaseTimeout, StepwellError
from stepwell.postgres import queries
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.jobs import Enqueued
from stepwell.values.duration import describe

_PATIENCE = 0.1
_SHORTEST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5


class KeyBusy(Exception):
    """An open transaction has a unique key of these jobs. None of them was written."""


def tried(query: Query[Enqueued]) -> list[Query[Enqueued]]:
    """The queries, for one transaction, of a try that fails rather than wait for a key."""
    return [queries.jobs.wait_at_most(_PATIENCE), query]


def is_busy(error: Exception) -> bool:
    """Whether a try failed because it would have had to wait."""
    from psycopg.errors import LockNotAvailable

    return isinstance(error.__cause__ if isinstance(error, StepwellError) else error, LockNotAvailable)


class KeyWait:
    """The tries of one call, which may take `limit` seconds in all; None: as long as the other transaction."""

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self._until = time.monotonic() + (inf if limit is None else limit)
        self._pause = _SHORTEST_PAUSE

    def pause_after(self, error: Exception) -> float:
        """The seconds before the next try. Raises the error of a try that failed otherwise, and `DatabaseTimeout` when
        the time is up."""
        if not is_busy(error):
            raise error
        if time.monotonic() >= self._until:
            raise DatabaseTimeout(
                "another transaction has kept this enqueue waiting for its unique key for "
                f"{describe(self._limit or 0)} (App(call_timeout=...) sets this limit), and is still open. Nothing was "
                "enqueued: enqueue again when that transaction has ended"
            ) from None
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        return pause
