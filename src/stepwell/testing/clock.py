"""Time travel: the database's clock, stopped, and set by the test."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any

import psycopg

from stepwell.app import App
from stepwell.errors import ConfigError, StepwellError
from stepwell.postgres.queries import Query
from stepwell.postgres.query_plan import QueryPlan, arun, run
from stepwell.values.duration import Duration, seconds

_NOW = "select stepwell.now()"
# In one statement, so all of it happens at once; the clock last, because the others reckon by what it was. Leases are
# moved along: whoever lives goes on living, and whoever is dead stays so for as long as before.
_SET = """
with moment as materialized (
  select coalesce(%s::timestamptz, stepwell.now() + %s * interval '1 second', clock_timestamp()) as at,
    stepwell.now() as was
), workers as materialized (
  select w.id from stepwell.worker w order by w.id for no key update
), moved as (
  update stepwell.worker w
  set renewed_at = w.renewed_at + (m.at - m.was), lease_until = w.lease_until + (m.at - m.was),
    lock_missing_since = w.lock_missing_since + (m.at - m.was), overdue_since = w.overdue_since + (m.at - m.was)
  from moment m
  where w.id in (select s.id from workers s) and w.lease_until > 'epoch'
  returning w.id
), led as (
  update stepwell.leader l set lease_until = l.lease_until + (m.at - m.was) from moment m returning l.worker_id
), gone as (
  delete from stepwell.clock returning at
), put as (
  insert into stepwell.clock (at)
  select m.at from moment m where %s and (select count(*) from gone) >= 0
  returning at
)
select m.at from moment m
where (select count(*) from moved) + (select count(*) from led) + (select count(*) from put) >= 0
"""
_NEXT = """
select min(j.run_at) from stepwell.job j
where j.state in ('scheduled', 'waiting') and j.run_at > stepwell.now() and j.run_at < 'infinity'
"""
_PROMOTE = "select promoted from stepwell.promote()"
_WAKE = "select pg_notify('stepwell_due', '0'), pg_notify('stepwell_tick', '')"


class Clock:
    """Stops the database's clock, for everybody on it, and lets the test set it: for databases of tests only.

    `with Clock(app) as clock: clock.advance("30d")`, or in async code `async with Clock(app) as clock: await
    clock.advance("30d")`. What has become due is run at once by the workers there are, which keep their leases. At the
    end the clock goes on with the real time.
    """

    def __init__(self, app: App, *, at: datetime | None = None) -> None:
        if at is not None and at.utcoffset() is None:
            raise ConfigError(f"Clock(at={at!r}): give a datetime with a time zone")
        self._database = app.database
        self._at = at

    def __enter__(self) -> StoppedClock:
        run(_set(self._at), self._database)
        return StoppedClock(self._database)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            run(_release(), self._database)
            return
        with suppress(psycopg.Error, StepwellError):  # what happened is worth more than that this failed, too
            run(_release(), self._database)

    async def __aenter__(self) -> AsyncStoppedClock:
        await arun(_set(self._at), self._database)
        return AsyncStoppedClock(self._database)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await arun(_release(), self._database)
            return
        with suppress(psycopg.Error, StepwellError):
            await arun(_release(), self._database)


class StoppedClock:
    """A clock that goes only when it is told to."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def now(self) -> datetime:
        """What it shows."""
        return run(_ask(_NOW), self._database)

    def advance(self, by: Duration) -> datetime:
        """Set it so much later. Returns what it shows then."""
        return run(_set(None, seconds(by, "by")), self._database)

    def set(self, at: datetime) -> datetime:
        """Set it to a time with a time zone, later or earlier."""
        return run(_set(_checked(at)), self._database)

    def skip(self) -> bool:
        """Set it to when the next job is due: one that was put off, sleeps, waits with a limit, or is tried again.
        False: there is none, or it is due already."""
        return run(_skip(), self._database)


class AsyncStoppedClock:
    """The same for async code."""

    def __init__(self, database: Any) -> None:
        self._database = database

    async def now(self) -> datetime:
        """What it shows."""
        return await arun(_ask(_NOW), self._database)

    async def advance(self, by: Duration) -> datetime:
        """Set it so much later. Returns what it shows then."""
        return await arun(_set(None, seconds(by, "by")), self._database)

    async def set(self, at: datetime) -> datetime:
        """Set it to a time with a time zone, later or earlier."""
        return await arun(_set(_checked(at)), self._database)

    async def skip(self) -> bool:
        """Set it to when the next job is due: one that was put off, sleeps, waits with a limit, or is tried again.
        False: there is none, or it is due already."""
        return await arun(_skip(), self._database)


def _set(at: datetime | None, by: float = 0.0) -> QueryPlan[datetime]:
    moment = yield from _ask(_SET, (at, by, True))
    # Not only a word to the workers: those that do not lead would look half a second later.
    yield from _ask(_PROMOTE)
    yield from _ask(_WAKE)
    return moment


def _release() -> QueryPlan[None]:
    yield from _ask(_SET, (None, None, False))
    yield from _ask(_WAKE)


def _skip() -> QueryPlan[bool]:
    following = yield from _ask(_NEXT)
    if following is None:
        return False
    yield from _set(following)
    return True


def _ask(text: Any, params: Sequence[Any] = ()) -> QueryPlan[Any]:
    return (yield Query(text, params, _first))[0]


def _first(value: Any, *_: Any) -> Any:
    return value


def _checked(at: datetime) -> datetime:
    if at.utcoffset() is None:
        raise ConfigError(f"the clock cannot be set to {at!r}: give a datetime with a time zone")
    return at
