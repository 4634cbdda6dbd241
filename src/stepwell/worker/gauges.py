"""Numbers about this moment, for metrics: what the workers of a process are doing, and what the whole database has."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any, TypeAlias

from stepwell.errors import StepwellError
from stepwell.postgres import queries
from stepwell.worker.status import WorkerStatus

DatabaseGauge: TypeAlias = tuple[str, str | None, float]
"""A name, a queue or None, and a number: a row of `stepwell.gauges`."""

# The database is asked at most this often, however often somebody scrapes.
_FRESH = 5.0
_AFTER_FAILURE = 60.0
_WITHIN = 2.0


def statuses_of(workers: Iterable[Any]) -> list[WorkerStatus]:
    """What these workers are doing. One that has not started says nothing."""
    return [status for worker in workers if (status := worker.status()) is not None]


class DatabaseGauges:
    """Numbers about the whole database. Any thread may ask for them."""

    def __init__(self) -> None:
        self._found: list[DatabaseGauge] = []
        self._ask_at = 0.0
        self._asking = threading.Lock()

    def read(self, app: Any, statuses: list[WorkerStatus]) -> list[DatabaseGauge]:
        """Return the numbers; none unless one of these workers leads. So one process of the fleet reports them."""
        if not any(status.leads for status in statuses):
            return []
        # One asks; the others get the numbers that it got last.
        if time.monotonic() >= self._ask_at and self._asking.acquire(blocking=False):
            try:
                self._found = app.database.fetch(queries.fleet.gauges(), _WITHIN)
                self._ask_at = time.monotonic() + _FRESH
            except StepwellError:
                # It is away, or the query has to pass over millions of dead rows: leave it alone for a while.
                self._found = []
                self._ask_at = time.monotonic() + _AFTER_FAILURE
            finally:
                self._asking.release()
        return self._found
