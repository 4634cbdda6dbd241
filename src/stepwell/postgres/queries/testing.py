"""Queries of `stepwell.testing`, for databases of tests only: some write to private tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import LiteralString

from stepwell.postgres.queries.query import Query, as_tuple

# All in one statement, so that it takes effect at once; the clock last, because the other parts use its old time.
# Leases move along: a live worker stays alive, and a dead one stays dead for as long as before.
_SET_CLOCK: LiteralString = """
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
_BUSY: LiteralString = """
select exists (
  select from stepwell.job j
  where j.state in ('ready', 'running')
    or j.state in ('scheduled', 'waiting') and j.run_at <= stepwell.now()
), exists (select from stepwell.job)
"""
_APP_BUSY: LiteralString = """
select exists (
  select from stepwell.job j
  where (j.state in ('ready', 'running') or j.state in ('scheduled', 'waiting') and j.run_at <= stepwell.now())
    and j.task = any (%s) and (j.owner is null or j.owner = %s)
)
"""
_DELETE_JOBS: LiteralString = """
with gone as (delete from stepwell.job j returning j.id)
delete from stepwell.step s using gone g where s.job_id = g.id returning s.key
"""


def set_clock(at: datetime | None, by: float = 0.0) -> Query[datetime]:
    """Stop the clock at a time, or `by` seconds later than now."""
    return Query(_SET_CLOCK, (at, by, True))


def stopped_clock() -> Query[datetime]:
    """The time at which the clock stands still; no row: it runs."""
    return Query("select c.at from stepwell.clock c")


def start_clock() -> Query[datetime]:
    return Query(_SET_CLOCK, (None, None, False))


def next_due() -> Query[datetime | None]:
    return Query(
        "select min(j.run_at) from stepwell.job j"
        " where j.state in ('scheduled', 'waiting') and j.run_at > stepwell.now() and j.run_at < 'infinity'"
    )


def promote_due() -> Query[int]:
    return Query("select promoted from stepwell.promote()")


def wake_workers() -> Query[tuple[str, str]]:
    """Have workers look for due jobs and due schedules."""
    return Query("select pg_notify('stepwell_due', '0'), pg_notify('stepwell_tick', '')", (), as_tuple)


def is_app_busy(tasks: Sequence[str], owner: str | None) -> Query[bool]:
    return Query(_APP_BUSY, (list(tasks), owner))


def admit_blocked() -> Query[int]:
    """Admit blocked jobs whose limits and rates have room, and return how many there were."""
    return Query("select admitted from stepwell.admit_keys(stepwell.lines())")


def busy_and_left() -> Query[tuple[bool, bool]]:
    """Whether any job is ready, running or due, and whether any live job is left."""
    return Query(_BUSY, (), as_tuple)


def ended_job(job_id: str) -> Query[tuple[str, object, str | None]]:
    """State, result and error of a finished job."""
    return Query("select h.state::text, h.result, h.error from stepwell.history h where h.id = %s", (job_id,), as_tuple)


def live_jobs() -> Query[tuple[str, str]]:
    """State and task of the oldest live jobs."""
    return Query("select j.state::text, j.task from stepwell.job j order by j.id limit 10", (), as_tuple)


def declare_dead(pids: Sequence[int]) -> Query[object]:
    """End the leases of killed workers, which a stopped clock would never do."""
    return Query(
        "update stepwell.worker w set lease_until = 'epoch' where w.pid = any (%s) returning w.id", (list(pids),)
    )


def rescue_all() -> Query[object]:
    return Query("select stepwell.rescue(0)")


def any_registered(pids: Sequence[int]) -> Query[bool]:
    return Query("select exists (select from stepwell.worker w where w.pid = any (%s))", (list(pids),))


def delete_live_jobs() -> Query[object]:
    return Query(_DELETE_JOBS)
