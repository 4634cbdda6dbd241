"""How jobs are tried, timed and kept: checks of what a task, or one of its jobs, is given."""

from __future__ import annotations

from typing import Literal, TypeAlias

from stepwell.duration import Duration, seconds
from stepwell.errors import ConfigError
from stepwell.retry import Retry

Keep: TypeAlias = Duration | Literal["forever"]
"""How long a finished job is kept: a length of time, 0 (not at all) or "forever"."""


def check_retry(retry: Retry | None) -> Retry | None:
    """A retry policy, if it is one."""
    if retry is not None and not isinstance(retry, Retry):
        raise ConfigError(f"retry is {retry!r}: give a Retry, such as Retry(max_attempts=5)")
    return retry


def check_timeout(timeout: Duration | None) -> float | None:
    """A timeout in seconds; None: none."""
    if timeout is None:
        return None
    limit = seconds(timeout, "timeout")
    if limit == 0:
        raise ConfigError("timeout is 0: leave it out for no timeout")
    return limit


def check_keep(keep: Keep, what: str) -> float:
    """How long to keep a job, in seconds; infinity: for ever."""
    if keep == "forever":
        return float("inf")
    try:
        return seconds(keep, what)
    except ConfigError as error:
        raise ConfigError(f'{error}, or "forever"') from None
