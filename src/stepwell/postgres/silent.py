"""Say early that a database does not answer, while the call still waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from stepwell.postgres.errors import where
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.enqueue import DatabaseSilent

_SILENT_AFTER = 1.0


@contextmanager
def warning_if_silent(
    dsn: str,
    limit: float | None = None,
    error: Callable[[], str | None] = lambda: None,
    events: EventBus | None = None,
) -> Generator[None]:
    """Emit a warning if the body takes longer than a second. It may take `limit` seconds; `error` is the last one."""
    emit = (events or EventBus()).emit
    timer = threading.Timer(_SILENT_AFTER, lambda: emit(DatabaseSilent(where(dsn), _SILENT_AFTER, limit, error())))
    timer.daemon = True
    if limit is None or limit > _SILENT_AFTER:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
