"""The calls of `App` about limits and rates by key, and settings of queues: read them, and set them at run time."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from stepwell.errors import BadArgs, ConfigError
from stepwell.errors.text import quoted
from stepwell.postgres import queries
from stepwell.postgres.database_type import Database
from stepwell.postgres.queries import Query
from stepwell.postgres.queries.limits import QueueSettings
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.values.bounds import check_name, check_whole
from stepwell.values.duration import seconds
from stepwell.values.limit_info import LimitInfo
from stepwell.values.policy import Keep, check_keep
from stepwell.values.public_call import public_call
from stepwell.values.rate import Rate
from stepwell.values.template import as_stored


class AppLimits:
    """The part of `App` that is about limits, rates and settings of queues."""

    database: Database

    def limits(self, key: str | None = None) -> list[LimitInfo]:
        """List the limits and rates in the database, of every app, by key: those with running or waiting jobs, and
        those that were set at run time, up to 10,000 keys; or only that of `key`."""
        refuse_in_event_loop("limits", "alimits")
        return self.database.fetch(_limits(key))

    async def alimits(self, key: str | None = None) -> list[LimitInfo]:
        """The same as `limits`, for async code."""
        return await self.database.afetch(_limits(key))

    def set_limit(self, key: str, most: int | None) -> None:
        """Set how many jobs with this key may run at once, in place of the number in the code: `set_limit("api", 5)`.
        0 lets none run; None removes the setting, so that the code decides again. It holds in the whole database and
        takes effect at once. Jobs that run go on."""
        refuse_in_event_loop("set_limit", "aset_limit")
        self.database.fetch(_set_limit(key, most))

    async def aset_limit(self, key: str, most: int | None) -> None:
        """The same as `set_limit`, for async code."""
        await self.database.afetch(_set_limit(key, most))

    def set_rate(self, key: str, rate: Rate | None) -> None:
        """Set how many jobs with this key may start per time, in place of the numbers in the code: `set_rate("api",
        Rate(50, per="1s"))`. None removes the setting. It holds in the whole database and takes effect at once."""
        refuse_in_event_loop("set_rate", "aset_rate")
        self.database.fetch(_set_rate(key, rate))

    async def aset_rate(self, key: str, rate: Rate | None) -> None:
        """The same as `set_rate`, for async code."""
        await self.database.afetch(_set_rate(key, rate))

    @public_call("app.set_queue")
    def set_queue(
        self,
        queue: str,
        *,
        limit: int | UnsetType | None = UNSET,
        rate: Rate | UnsetType | None = UNSET,
        keep: Keep | UnsetType | None = UNSET,
        keep_failed: Keep | UnsetType | None = UNSET,
        paused: bool | UnsetType = UNSET,
    ) -> None:
        """Set what holds for all jobs of a queue, over all workers of every app: `set_queue("mail", limit=10)`. What is
        not given stays as it is; None removes a setting. It takes effect at once.

        At most `limit` of its jobs run at once, and 0 lets none run; `rate`, such as `Rate(50, per="1s")`, is how many
        start per time. Both hold for jobs that wait already, too. Jobs that run go on, and count towards the limit. A
        job counts towards the rate when a worker claims it, for each attempt.

        `keep` and `keep_failed` are how long jobs are kept after they have succeeded, or have failed or were cancelled.
        They hold for jobs that end from now on, unless the job or its task has its own. `paused` pauses or resumes the
        queue.
        """
        refuse_in_event_loop("set_queue", "aset_queue")
        self.database.fetch(_set_queue(queue, limit, rate, keep, keep_failed, paused))

    @public_call("app.aset_queue")
    async def aset_queue(
        self,
        queue: str,
        *,
        limit: int | UnsetType | None = UNSET,
        rate: Rate | UnsetType | None = UNSET,
        keep: Keep | UnsetType | None = UNSET,
        keep_failed: Keep | UnsetType | None = UNSET,
        paused: bool | UnsetType = UNSET,
    ) -> None:
        """The same as `set_queue`, for async code."""
        await self.database.afetch(_set_queue(queue, limit, rate, keep, keep_failed, paused))


def _limits(key: str | None) -> Query[LimitInfo]:
    return queries.limits.limits(None if key is None else _checked_key(key))


def _set_limit(key: str, most: int | None) -> Query[None]:
    checked = None if most is None else check_whole(most, "most", 0, 1_000_000)
    return queries.limits.set_limit(_checked_key(key), checked)


def _set_rate(key: str, rate: Rate | None) -> Query[None]:
    if isinstance(rate, Rate) and rate.key is not None and rate.key != key:
        raise ConfigError(f"the rate is for key {key!r}, but has key={rate.key!r}: leave key= out")
    return queries.limits.set_rate(_checked_key(key), *_numbers(rate))


def _checked_key(key: str) -> str:
    """Return a key as its jobs have it, which may be long and unprintable."""
    if not isinstance(key, str):
        raise ConfigError(f"key is {quoted(key)}: give text, such as 'tenant-acme'")
    try:
        return as_stored(key, "key")
    except BadArgs as error:
        raise ConfigError(str(error)) from None


def _set_queue(
    queue: str,
    limit: int | UnsetType | None,
    rate: Rate | UnsetType | None,
    keep: Keep | UnsetType | None,
    keep_failed: Keep | UnsetType | None,
    paused: bool | UnsetType,
) -> Query[None]:
    given = {"limit": limit, "rate": rate, "keep": keep, "keep_failed": keep_failed, "paused": paused}
    if all(value is UNSET for value in given.values()):
        raise ConfigError(f"set what of queue {queue!r}? Give {', '.join(f'{name}=' for name in given)}")
    if isinstance(rate, Rate) and rate.key is not None:
        raise ConfigError(f"the rate is for queue {queue!r}, but has key={rate.key!r}: leave key= out")
    if paused is not UNSET and not isinstance(paused, bool):
        raise ConfigError(f"paused is {paused!r}: give True or False")
    count, per, burst, smooth = _numbers(None if isinstance(rate, UnsetType) else rate)
    settings = QueueSettings(
        None if limit is None or isinstance(limit, UnsetType) else check_whole(limit, "limit", 0, 1_000_000),
        count,
        1.0 if per is None else per,
        burst,
        None if keep is None or isinstance(keep, UnsetType) else check_keep(keep, "keep"),
        None if keep_failed is None or isinstance(keep_failed, UnsetType) else check_keep(keep_failed, "keep_failed"),
        None if isinstance(paused, UnsetType) else paused,
        tuple(name for name, value in given.items() if value is None),
        smooth,
    )
    return queries.limits.set_queue(check_name(queue, "queue"), settings)


def _numbers(rate: Rate | None) -> tuple[int | None, float | None, int | None, bool]:
    """Return the count, the seconds that it is for, the burst, and whether it is smooth."""
    if rate is None:
        return None, None, None, False
    if not isinstance(rate, Rate):
        raise ConfigError(f'rate is {rate!r}: give a Rate, such as Rate(50, per="1s"), or None to remove the setting')
    return rate.count, seconds(rate.per, "Rate(per)"), rate.burst, rate.smooth
