"""The pause before the next attempt of a task or step."""

from __future__ import annotations

from stepwell.durable.journal import Journal
from stepwell.errors.text import error_line_of
from stepwell.telemetry.bus import log
from stepwell.telemetry.steps import BackoffFailed
from stepwell.values.retry import Retry

_FAILED_PAUSE = 60.0


def pause_after(error: BaseException, retry: Retry, attempt: int, name: str, journal: Journal | None = None) -> float:
    """Seconds to wait after a failed attempt of `name`, a task or a step. A back-off function that raises must not lose
    the job: it gets a minute. Subscribers hear of the failure if the run has a journal."""
    try:
        return retry.delay(attempt, error)
    except Exception as own:
        line = error_line_of(own)
        if journal is None:
            log(BackoffFailed(None, name, None, attempt, name, line, _FAILED_PAUSE))
        else:
            journal.tell(BackoffFailed, name, line, _FAILED_PAUSE)
        return _FAILED_PAUSE
