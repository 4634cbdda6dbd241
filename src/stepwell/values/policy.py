"""How jobs are tried, timed and kept: checks of what a task is given, and the policy that one job has of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

import msgspec

from stepwell.errors import ConfigError
from stepwell.values.duration import Duration, seconds
from stepwell.values.retry import Retry

Keep: TypeAlias = Duration | Literal["forever"]
"""How long a finished job is kept: a length of time, 0 (not at all) or "forever"."""


Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
# JSON has no infinity. Postgres reads this text as one, too.
StoredKeep: TypeAlias = Annotated[float, msgspec.Meta(ge=0)] | Literal["Infinity"]


class StoredRetry(msgspec.Struct, frozen=True):
    """A retry policy as it is stored. `max_attempts` is the job's own; which errors are tried again is the task's."""

    backoff: Literal["exponential", "linear", "fixed"]
    initial: float
    factor: float
    cap: float
    jitter: float


class JobPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one job is tried, timed and kept, as it is stored with it; None: as its task."""

    retry: StoredRetry | None = None
    timeout: Seconds | None = None
    keep: StoredKeep | None = None
    keep_failed: StoredKeep | None = None

    def encoded(self) -> str | None:
        """As JSON; None: there is nothing to store."""
        return None if self == _AS_TASK else msgspec.json.encode(self).decode()

    def applied_to(self, retry: Retry) -> Retry:
        """A task's own retry policy with what this one says in its place."""
        return retry if self.retry is None else replace(retry, **msgspec.structs.asdict(self.retry))


_AS_TASK = JobPolicy()
_decoder = msgspec.json.Decoder(JobPolicy)


def read_policy(stored: str) -> JobPolicy:
    """The policy that is stored with a job. Raises `ValueError` or `StepwellError` if it is none."""
    policy = _decoder.decode(stored)
    policy.applied_to(Retry())
    return policy


def stored_retry(retry: Retry) -> StoredRetry:
    """A retry policy to be stored with a job. Raises `ConfigError` if it has what only code can say."""
    check_retry(retry)
    if callable(retry.backoff):
        raise ConfigError(
            "Retry(backoff=<function>) cannot be stored with a job: name a backoff, such as 'linear', or set it on the "
            "task"
        )
    if (retry.retry_on, retry.never_on) != ((BaseException,), ()):
        raise ConfigError(
            "Retry(retry_on=..., never_on=...) cannot be stored with a job: leave them out, so that those of the task "
            "hold, or set them on the task"
        )
    initial, cap = seconds(retry.initial, "Retry(initial)"), seconds(retry.cap, "Retry(cap)")
    return StoredRetry(retry.backoff, initial, float(retry.factor), cap, float(retry.jitter))


def stored_keep(keep: Keep, what: str) -> StoredKeep:
    """How long to keep a job, to be stored with it."""
    length = check_keep(keep, what)
    return "Infinity" if length == float("inf") else length


def check_retry(retry: Retry | None, what: str = "retry") -> Retry | None:
    """A retry policy, if it is one."""
    if retry is not None and not isinstance(retry, Retry):
        raise ConfigError(f"{what} is {retry!r}: give a Retry, such as Retry(max_attempts=5)")
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
