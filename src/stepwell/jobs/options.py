"""The options of jobs to come, as `task.using(...)` takes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from stepwell.errors import ConfigError
from stepwell.values.admission import Admission, Unique
from stepwell.values.bounds import check_whole
from stepwell.values.duration import HUNDRED_YEARS
from stepwell.values.policy import JobPolicy

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
    unique: Unique | None = None
    """A unique key of its own, which is no template."""
    connection: object | None = None

    def policy_with(self, admission: Admission | None) -> str | None:
        """Return the policy of a job with these keys, as JSON; None: there is nothing to store."""
        if admission is None:
            return self.stored_policy
        if self.stored_policy is None:
            return f'{{"admission":{msgspec.json.encode(admission).decode()}}}'
        return msgspec.structs.replace(self.policy, admission=admission).encoded()

    def changed(self, policy: dict[str, Any], options: dict[str, Any]) -> Options:
        if policy:
            made = msgspec.structs.replace(self.policy, **policy)
            options = {**options, "policy": made, "stored_policy": made.encoded()}
        changed = replace(self, **options)
        if changed.delay is not None and changed.run_at is not None:
            raise ConfigError("delay and run_at exclude each other: give one")
        return changed


def check_priority(priority: int) -> int:
    return check_whole(priority, "priority", -32767, 32767)


def check_run_at(run_at: datetime) -> datetime:
    if not isinstance(run_at, datetime):
        raise ConfigError(f"run_at is {run_at!r}: give a datetime with a time zone")
    if run_at.utcoffset() is None:
        raise ConfigError(f"run_at is {run_at!r}, without a time zone: use datetime.now(timezone.utc) or the like")
    # One day less than the database allows, because the database has a clock of its own.
    if not _EPOCH <= run_at <= datetime.now(UTC) + timedelta(seconds=HUNDRED_YEARS - 86400):
        raise ConfigError(f"run_at is in the year {run_at.year}: it must be between 1970 and 100 years from now")
    return run_at
