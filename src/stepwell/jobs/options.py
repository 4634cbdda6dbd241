"""The options of jobs to come, as `task.using(...)` takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from stepwell.errors import ConfigError
from stepwell.jobs.codec import encode_metadata
from stepwell.values.duration import HUNDRED_YEARS, Duration, seconds
from stepwell.values.names import check_name
from stepwell.values.policy import JobPolicy, Keep, check_timeout, stored_keep, stored_retry
from stepwell.values.retry import Retry, check_max_attempts

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a job, checked and encoded. None: the task's own."""

    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    run_at: datetime | None = None
    metadata: str | None = None
    max_attempts: int | None = None
    policy: JobPolicy = JobPolicy()  # noqa: RUF009 it is frozen
    stored_policy: str | None = None
    """The policy as JSON; None: it is empty."""
    connection: object | None = None

    def with_(
        self,
        queue: str | None,
        priority: int | None,
        delay: Duration | None,
        run_at: datetime | None,
        metadata: Mapping[str, Any] | None,
        max_attempts: int | None,
        retry: Retry | None,
        timeout: Duration | None,
        keep: Keep | None,
        keep_failed: Keep | None,
        connection: object | None,
    ) -> Options:
        """Return these options with those that are not None replaced. Raises `ConfigError` or `BadArgs`."""
        changed: dict[str, Any] = {}
        if queue is not None:
            changed["queue"] = check_name(queue, "queue")
        if priority is not None:
            changed["priority"] = check_priority(priority)
        if delay is not None:
            changed["delay"] = seconds(delay, "delay")
        if run_at is not None:
            changed["run_at"] = _check_run_at(run_at)
        if metadata is not None:
            changed["metadata"] = encode_metadata(metadata)
        policy: dict[str, Any] = {}
        if retry is not None:
            policy["retry"] = stored_retry(retry)
            changed["max_attempts"] = retry.max_attempts
        if timeout is not None:
            policy["timeout"] = check_timeout(timeout)
        if keep is not None:
            policy["keep"] = stored_keep(keep, "keep")
        if keep_failed is not None:
            policy["keep_failed"] = stored_keep(keep_failed, "keep_failed")
        if policy:
            changed["policy"] = made = msgspec.structs.replace(self.policy, **policy)
            changed["stored_policy"] = made.encoded()
        if max_attempts is not None:
            changed["max_attempts"] = check_max_attempts(max_attempts, "max_attempts")
        if connection is not None:
            changed["connection"] = connection
        options = replace(self, **changed)
        if options.delay is not None and options.run_at is not None:
            raise ConfigError("delay and run_at exclude each other: give one")
        return options


def check_priority(priority: int) -> int:
    """Return the priority, if a job can have it."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not -32767 <= priority <= 32767:
        raise ConfigError(f"priority is {priority!r}: it must be a whole number between -32767 and 32767")
    return priority


def _check_run_at(run_at: datetime) -> datetime:
    if not isinstance(run_at, datetime):
        raise ConfigError(f"run_at is {run_at!r}: give a datetime with a time zone")
    if run_at.utcoffset() is None:
        raise ConfigError(f"run_at is {run_at!r}, without a time zone: use datetime.now(timezone.utc) or the like")
    # One day less than the database allows, because the database has a clock of its own.
    if not _EPOCH <= run_at <= datetime.now(UTC) + timedelta(seconds=HUNDRED_YEARS - 86400):
        raise ConfigError(f"run_at is in the year {run_at.year}: it must be between 1970 and 100 years from now")
    return run_at
