"""The options of jobs to come, as `task.using(...)` takes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from stepwell.errors import ConfigError
from stepwell.values.admission import Admission
from stepwell.values.bounds import check_name, check_whole
from stepwell.values.duration import HUNDRED_YEARS
from stepwell.values.policy import JobPolicy
from stepwell.values.unique import Unique

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Options(msgspec.Struct, frozen=True):
    """Options of a job, checked and encoded. None: the task's own."""

    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    run_at: datetime | None = None
    metadata: str | None = None
    max_attempts: int | None = None
    policy: JobPolicy = JobPolicy()
    stored_policy: str | None = None
    """The policy as JSON; None: it is empty."""
    unique: Unique | None = None
    """A unique key of its own, which is no template."""
    connection: object | None = None

    def policy_with(self, admission: Admission | None) -> str | None:
        """Return the policy of a job with these keys, as JSON; None: there is nothing to store."""
        if admission is None:
            return self.stored_policy
        if admission.fair is not None and (self.delay or self.run_at is not None):
            return msgspec.structs.replace(self.policy, admission=admission, delayed=True).encoded()
        if self.stored_policy is None:
            return f'{{"admission":{msgspec.json.encode(admission).decode()}}}'
        return msgspec.structs.replace(self.policy, admission=admission).encoded()

    def job_policy(self, admission: Admission | None) -> str | None:
        """The same, but without a plain unique key, which `NewJob` has by itself."""
        if admission is not None and self.stored_policy is None and admission.is_plain_key:
            return None
        return self.policy_with(admission)

    def changed(self, policy: dict[str, Any], options: dict[str, Any]) -> Options:
        if policy:
            made = msgspec.structs.replace(self.policy, **policy)
            options = {**options, "policy": made, "stored_policy": made.encoded()}
        changed = msgspec.structs.replace(self, **options)
        if changed.delay is not None and changed.run_at is not None:
            raise ConfigError("delay and run_at exclude each other: give one")
        return changed


def check_priority(priority: int) -> int:
    return check_whole(priority, "priority", -32767, 32767)


def check_place(queue: str | None, priority: int | None, run_at: datetime | None) -> None:
    """Check where a job is to be moved. None: it stays as it is."""
    if queue is None and priority is None and run_at is None:
        raise ConfigError("move where? Give a queue, a priority or a time")
    if queue is not None:
        check_name(queue, "queue")
    if priority is not None:
        check_priority(priority)
    if run_at is not None:
        check_run_at(run_at)


def check_run_at(run_at: datetime) -> datetime:
    if not isinstance(run_at, datetime):
        raise ConfigError(f"run_at is {run_at!r}: give a datetime with a time zone")
    if run_at.utcoffset() is None:
        raise ConfigError(f"run_at is {run_at!r}, without a time zone: use datetime.now(timezone.utc) or the like")
    # One day less than the database allows, because the database has a clock of its own.
    if not _EPOCH <= run_at <= datetime.now(UTC) + timedelta(seconds=HUNDRED_YEARS - 86400):
        raise ConfigError(f"run_at is in the year {run_at.year}: it must be between 1970 and 100 years from now")
    return run_at
