"""The pause before the next attempt of a task or step."""

from __future__ import annotations

from stepwell.errors.text import error_line_of
from stepwell.values.retry import Retry

_FAILED_PAUSE = 60.0


def pause_after(error: BaseException, retry: Retry, attempt: int) -> tuple[float, str | None]:
    """Seconds to wait after a failed attempt, and the error of the back-off function if it raised: that must not lose
    the job, which gets a minute."""
    try:
        return retry.delay(attempt, error), None
    except Exception as own:
        return _FAILED_PAUSE, error_line_of(own)
