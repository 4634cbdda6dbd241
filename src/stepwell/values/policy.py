"""How jobs are retried, timed and kept: checks of a task's options, and the policy that is stored with a job."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

import msgspec

from stepwell.errors import ConfigError
from stepwell.values.admission import Admission
from stepwell.values.duration import Duration, seconds
from stepwell.values.retry import Retry

Keep: TypeAlias = Duration | Literal["forever"]
"""How long a finished job is kept: a duration, 0 (not at all) or "forever"."""


Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
# JSON has no infinity. Postgres also reads this text as one.
StoredKeep: TypeAlias = Annotated[float, msgspec.Meta(ge=0)] | Literal["Infinity"]

DEFAULT_KEEPS = (7 * 86400.0, 30 * 86400.0)
"""For how many seconds successes and failures are kept, unless the task says otherwise."""


class StoredRetry(msgspec.Struct, frozen=True):
    """A stored retry policy. `max_attempts` is a column of the job; which errors are retried is up to the task."""

    backoff: Literal["exponential", "linear", "fixed"]
    initial: float
    factor: float
    cap: float
    jitter: float


class JobPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """The policy of one job, as stored with it. None: the task's own."""

    retry: StoredRetry | None = None
    timeout: Seconds | None = None
    keep: StoredKeep | None = None
    keep_failed: StoredKeep | None = None
    admission: Admission | None = None
    """The keys of the job. The database stores them apart from the rest of the policy."""

    delayed: bool = False
    """Whether a job with a fair key was enqueued for later. The database keeps no such time of it."""

    headers: dict[str, str] | None = None
    """The headers of the job. They are no part of the policy, but stored with it."""

    def encoded(self) -> str | None:
        """Encode as JSON; None: there is nothing to store."""
        return None if self == AS_TASK else msgspec.json.encode(self).decode()

    def applied_to(self, retry: Retry) -> Retry:
        return retry if self.retry is None else replace(retry, **msgspec.structs.asdict(self.retry))


AS_TASK = JobPolicy()
_decoder = msgspec.json.Decoder(JobPolicy)


def read_policy(stored: str) -> JobPolicy:
    """Decode the policy that is stored with a job. Raises `ValueError` or `StepwellError` if it is not valid."""
    policy = _decoder.decode(stored)
    policy.applied_to(Retry())
    return policy


def is_delayed(stored: str | None) -> bool:
    """Whether a policy says that its job was enqueued for later. Cheap, and wrong only for a header of that name."""
    return stored is not None and '"delayed"' in stored


def without_headers(stored: str) -> JobPolicy:
    """The policy that is stored with a job, without what is only stored beside it. Raises as `read_policy` does, but
    does not check the values."""
    policy = _decoder.decode(stored)
    return JobPolicy(policy.retry, policy.timeout, policy.keep, policy.keep_failed)


def stored_retry(retry: Retry) -> StoredRetry:
    """Convert a retry policy to store it with a job. Raises `ConfigError` for a field that only code can express."""
    check_retry(retry)
    if callable(retry.backoff):
        raise ConfigError(
            "Retry(backoff=<function>) cannot be stored with a job: name a backoff, such as 'linear', or set it on the "
            "task"
        )
    if (retry.retry_on, retry.never_on) != ((BaseException,), ()):
        raise ConfigError(
            "Retry(retry_on=..., never_on=...) cannot be stored with a job: leave them out, so that those of the task "
            "apply, or set them on the task"
        )
    initial, cap = seconds(retry.initial, "Retry(initial)"), seconds(retry.cap, "Retry(cap)")
    return StoredRetry(retry.backoff, initial, float(retry.factor), cap, float(retry.jitter))


def stored_keep(keep: Keep, what: str) -> StoredKeep:
    length = check_keep(keep, what)
    return "Infinity" if length == float("inf") else length


def check_retry(retry: object, what: str = "retry") -> Retry | None:
    """Return the retry policy, if it is one. Raises `ConfigError`, which names `what`, if it is not."""
    if retry is not None and not isinstance(retry, Retry):
        raise ConfigError(f"{what} is {retry!r}: give a Retry, such as Retry(max_attempts=5)")
    return retry


def check_timeout(timeout: Duration | None, what: str = "timeout") -> float | None:
    if timeout is None:
        return None
    limit = seconds(timeout, what)
    if limit == 0:
        raise ConfigError(f"{what} is 0: give some seconds, or None, or leave it out")
    return limit


def check_keep(keep: Keep, what: str) -> float:
    """Return how long to keep a job, in seconds; infinity: forever."""
    if keep == "forever":
        return float("inf")
    try:
        return seconds(keep, what)
    except ConfigError as error:
        raise ConfigError(f'{error}, or "forever"') from None
