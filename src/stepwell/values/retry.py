"""Retry policies: a policy is a value, and the delay before the next attempt is a function of the attempt."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

from stepwell.errors import ConfigError
from stepwell.errors.text import error_line_of
from stepwell.values.bounds import check_whole
from stepwell.values.duration import Duration, seconds
from stepwell.values.public_call import public_value

Backoff = Literal["exponential", "linear", "fixed"] | Callable[[int, BaseException], Duration]
"""How the delay grows; or a function that gets the failed attempt (from 1) and its error and returns the delay."""

_FAILED_PAUSE = 60.0
_ATTEMPTS = "max_attempts=..., which counts the first attempt, too"


@public_value(
    max_retries=_ATTEMPTS,
    retries=_ATTEMPTS,
    max_tries=_ATTEMPTS,
    tries=_ATTEMPTS,
    attempts=_ATTEMPTS,
    limit=_ATTEMPTS,
    delay='initial="1s"',
    wait='initial="1s"',
    default_retry_delay='initial="1s"',
    max_delay='cap="1h"',
    max_backoff='cap="1h"',
    retry_backoff_max='cap="1h"',
    retry_backoff='backoff="exponential"',
    retry_jitter="jitter=0.1",
    exceptions="retry_on=(ConnectionError,)",
    retry_exceptions="retry_on=(ConnectionError,)",
    autoretry_for="retry_on=(ConnectionError,)",
    throws="never_on=(ValueError,)",
    timeout="it beside the policy: @app.task(retry=Retry(...), timeout=...)",
)
@dataclass(frozen=True, kw_only=True)
class Retry:
    """How often and when a task is retried.

    `max_attempts` counts all attempts, the first included. The delay starts at `initial`, grows by `backoff` up to
    `cap`, and is spread by `jitter`, a fraction of it either way but never beyond `cap`. Only errors of the types in
    `retry_on` and not of those in `never_on` are retried; a timeout or the death of a worker always is.
    """

    max_attempts: int = 20
    backoff: Backoff = "exponential"
    initial: Duration = "1s"
    factor: float = 2.0
    cap: Duration = "1h"
    jitter: float = 0.1
    retry_on: tuple[type[BaseException], ...] = (BaseException,)
    never_on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        check_max_attempts(self.max_attempts, "Retry(max_attempts)")
        if not callable(self.backoff) and self.backoff not in ("exponential", "linear", "fixed"):
            raise ConfigError(
                f"Retry(backoff={self.backoff!r}): it must be 'exponential', 'linear', 'fixed' or a function"
            )
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise ConfigError(f"Retry(jitter={self.jitter!r}): it must be between 0 and 1")
        if not _is_number(self.factor) or not 1 <= self.factor <= 1000:
            raise ConfigError(f"Retry(factor={self.factor!r}): it must be between 1 and 1000")
        seconds(self.initial, "Retry(initial)")
        seconds(self.cap, "Retry(cap)")
        for name in ("retry_on", "never_on"):
            types: object = getattr(self, name)
            if isinstance(types, type) and issubclass(types, BaseException):
                object.__setattr__(self, name, (types,))
            elif not isinstance(types, tuple | list) or not all(
                isinstance(t, type) and issubclass(t, BaseException)
                for t in types  # pyright: ignore[reportUnknownVariableType]
            ):
                raise ConfigError(f"Retry({name}={types!r}): give a tuple of exception types")
            else:
                object.__setattr__(self, name, tuple(types))  # pyright: ignore[reportUnknownArgumentType]

    def allows(self, error: BaseException) -> bool:
        """Whether an error of this type may be retried. A `ConfigError` never is: only a change of code fixes it."""
        return isinstance(error, self.retry_on) and not isinstance(error, self.never_on) and not _is_misuse(error)

    def delay(self, attempt: int, error: BaseException) -> float:
        """Return the delay after this failed attempt, in seconds."""
        if callable(self.backoff):
            return seconds(self.backoff(attempt, error), "the delay returned by Retry(backoff)")
        initial = seconds(self.initial, "Retry(initial)")
        cap = seconds(self.cap, "Retry(cap)")
        match self.backoff:
            case "fixed":
                pause = initial
            case "linear":
                pause = initial * attempt
            case "exponential":
                # Bounding the exponent avoids an overflow; the cap applies long before.
                pause = initial * self.factor ** min(attempt - 1, 100)
        pause = min(pause, cap)
        # The spread ends at the cap. If it were cut off there, half of all retries would come at the same moment.
        return random.uniform(pause * (1 - self.jitter), min(pause * (1 + self.jitter), cap))  # noqa: S311


def pause_after(error: BaseException, retry: Retry, attempt: int) -> tuple[float, str | None]:
    """Seconds to wait after a failed attempt, and the error of the back-off function if it raised: that must not lose
    the job, which gets a minute."""
    try:
        return retry.delay(attempt, error), None
    except Exception as own:
        return _FAILED_PAUSE, error_line_of(own)


def _is_misuse(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_misuse, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return isinstance(error, ConfigError)


def check_max_attempts(attempts: int, what: str) -> int:
    return check_whole(attempts, what, 1, 1_000_000)


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)
