"""The pause before the next try, whatever a function of the user's makes of it."""

from __future__ import annotations

from stepwell.error_text import error_line_of
from stepwell.telemetry.bus import log
from stepwell.telemetry.steps import BackoffFailed
from stepwell.values.retry import Retry

_FAILED_PAUSE = 60.0


def pause_after(error: BaseException, retry: Retry, attempt: int, name: str) -> float:
    """Seconds to wait after this failed attempt of a task or step. A backoff function that fails must not lose it."""
    try:
        return retry.delay(attempt, error)
    except Exception as own:
        log(BackoffFailed(None, name, None, attempt, name, error_line_of(own), _FAILED_PAUSE))
        return _FAILED_PAUSE
