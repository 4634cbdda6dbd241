"""The calls of `App` about limits and rates by key, and limits of queues: read them, and set them at run time."""

from __future__ import annotations

from stepwell.errors import ConfigError
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.postgres.queries import Query
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.values.admission import Rate
from stepwell.values.bounds import check_name, check_whole
from stepwell.values.duration import seconds
from stepwell.values.limit_info import LimitInfo


class AppLimits:
    """The part of `App` that is about limits and rates."""

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

    def set_queue_limit(self, queue: str, most: int | None) -> None:
        """Set how many jobs of a queue may run at once, over all workers of every app: `set_queue_limit("mail", 10)`.
        It holds for all jobs of the queue, also for those that wait already. 0 lets none run; None removes the limit.
        It takes effect at once. Jobs that run go on, and count."""
        refuse_in_event_loop("set_queue_limit", "aset_queue_limit")
        self.database.fetch(_set_queue_limit(queue, most))

    async def aset_queue_limit(self, queue: str, most: int | None) -> None:
        """The same as `set_queue_limit`, for async code."""
        await self.database.afetch(_set_queue_limit(queue, most))

    def set_queue_rate(self, queue: str, rate: Rate | None) -> None:
        """Set how many jobs of a queue may start per time, over all workers of every app: `set_queue_rate("mail",
        Rate(50, per="1s"))`. It holds for all jobs of the queue, also for those that wait already. None removes it. A
        job counts when a worker claims it, for each attempt."""
        refuse_in_event_loop("set_queue_rate", "aset_queue_rate")
        self.database.fetch(_set_queue_rate(queue, rate))

    async def aset_queue_rate(self, queue: str, rate: Rate | None) -> None:
        """The same as `set_queue_rate`, for async code."""
        await self.database.afetch(_set_queue_rate(queue, rate))


def _limits(key: str | None) -> Query[LimitInfo]:
    return queries.limits.limits(None if key is None else check_name(key, "key"))


def _set_limit(key: str, most: int | None) -> Query[None]:
    checked = None if most is None else check_whole(most, "most", 0, 1_000_000)
    return queries.limits.set_limit(check_name(key, "key"), checked)


def _set_queue_limit(queue: str, most: int | None) -> Query[None]:
    checked = None if most is None else check_whole(most, "most", 0, 1_000_000)
    return queries.limits.set_queue_limit(check_name(queue, "queue"), checked)


def _set_rate(key: str, rate: Rate | None) -> Query[None]:
    if isinstance(rate, Rate) and rate.key is not None and rate.key != key:
        raise ConfigError(f"the rate is for key {key!r}, but has key={rate.key!r}: leave key= out")
    return queries.limits.set_rate(check_name(key, "key"), *_numbers(rate))


def _set_queue_rate(queue: str, rate: Rate | None) -> Query[None]:
    if isinstance(rate, Rate) and rate.key is not None:
        raise ConfigError(f"the rate is for queue {queue!r}, but has key={rate.key!r}: leave key= out")
    return queries.limits.set_queue_rate(check_name(queue, "queue"), *_numbers(rate))


def _numbers(rate: Rate | None) -> tuple[int | None, float | None, int | None]:
    """Return the count, the seconds that it is for, and the burst."""
    if rate is None:
        return None, None, None
    if not isinstance(rate, Rate):
        raise ConfigError(f'rate is {rate!r}: give a Rate, such as Rate(50, per="1s"), or None to remove the setting')
    return rate.count, seconds(rate.per, "Rate(per)"), 1 if rate.smooth else rate.burst
