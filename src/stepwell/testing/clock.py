"""Time travel: stop the database's clock, and set it from the test."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime

import psycopg

from stepwell.app import App
from stepwell.errors import ConfigError, StepwellError
from stepwell.postgres.database import Database
from stepwell.postgres.queries import testing as queries
from stepwell.postgres.queries.reads import clock
from stepwell.postgres.query_plan import QueryPlan, arun, rows_of, run
from stepwell.values.duration import Duration, seconds

# How many clocks of this process are open, by database. A clock that a killed process left stopped is none of these,
# and goes on at the end of the next one.
_open: Counter[str] = Counter()


class Clock:
    """Stops the clock of a test database, for everybody who uses it, and lets the test set it.

    `with Clock(app) as clock: clock.advance("30d")`, or in async code `async with Clock(app) as clock: await
    clock.advance("30d")`. Running workers keep their leases and run at once the jobs that became due. At the end the
    clock goes on with the real time, or within another `Clock` stands still again at the time that it had there.
    """

    def __init__(self, app: App, *, at: datetime | None = None) -> None:
        if at is not None and at.utcoffset() is None:
            raise ConfigError(f"Clock(at={at!r}): give a datetime with a time zone")
        self._database = app.database
        self._at = at
        self._before: list[tuple[str, datetime | None]] = []

    def __enter__(self) -> StoppedClock:
        self._before.append(run(_stop(self._at, self._database), self._database))
        return StoppedClock(self._database)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        before = self._before.pop()
        with _keeping(error):
            run(_restore(*before), self._database)

    async def __aenter__(self) -> AsyncStoppedClock:
        self._before.append(await arun(_stop(self._at, self._database), self._database))
        return AsyncStoppedClock(self._database)

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        before = self._before.pop()
        with _keeping(error):
            await arun(_restore(*before), self._database)


class StoppedClock:
    """A clock that moves only when the test moves it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def now(self) -> datetime:
        """The time that the clock shows."""
        return run(rows_of(clock()), self._database)[0]

    def advance(self, by: Duration) -> datetime:
        """Move the clock forward, and return its new time."""
        return run(_set(None, seconds(by, "by")), self._database)

    def set(self, at: datetime) -> datetime:
        """Set the clock to a time with a time zone, later or earlier."""
        return run(_set(_checked(at)), self._database)

    def skip(self) -> bool:
        """Move the clock to the next time at which a job is due: delayed, sleeping, waiting with a timeout, or to be
        retried. Returns False if there is none, or if it is due already."""
        return run(_skip(), self._database)


class AsyncStoppedClock:
    """`StoppedClock` for async code."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self) -> datetime:
        """The same as `StoppedClock.now`."""
        return (await arun(rows_of(clock()), self._database))[0]

    async def advance(self, by: Duration) -> datetime:
        """The same as `StoppedClock.advance`."""
        return await arun(_set(None, seconds(by, "by")), self._database)

    async def set(self, at: datetime) -> datetime:
        """The same as `StoppedClock.set`."""
        return await arun(_set(_checked(at)), self._database)

    async def skip(self) -> bool:
        """The same as `StoppedClock.skip`."""
        return await arun(_skip(), self._database)


def _keeping(error: BaseException | None) -> AbstractContextManager[None]:
    """A second error must not hide the first."""
    return nullcontext() if error is None else suppress(psycopg.Error, StepwellError)


def _set(at: datetime | None, by: float = 0.0) -> QueryPlan[datetime]:
    [moment] = yield queries.set_clock(at, by)
    # Promote here, too: workers other than the leader look only half a second after a notification.
    yield queries.promote_due()
    yield queries.wake_workers()
    return moment


def _stop(at: datetime | None, database: Database) -> QueryPlan[tuple[str, datetime | None]]:
    """Stop the clock. Returns its database, and the time at which another `Clock` had stopped it; None: there is no
    other."""
    found = yield queries.stopped_clock()
    place = database.dsn  # only now: the query has started an embedded Postgres
    before = found[0] if found and _open[place] else None
    yield from _set(at)
    _open[place] += 1
    return place, before


def _restore(place: str, before: datetime | None) -> QueryPlan[None]:
    _open[place] -= 1
    if before is not None:
        yield from _set(before)
        return
    yield queries.start_clock()
    yield queries.wake_workers()


def _skip() -> QueryPlan[bool]:
    [following] = yield queries.next_due()
    if following is None:
        return False
    yield from _set(following)
    return True


def _checked(at: datetime) -> datetime:
    if at.utcoffset() is None:
        raise ConfigError(f"the clock cannot be set to {at!r}: give a datetime with a time zone")
    return at
