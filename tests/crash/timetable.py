"""Schedules and delayed jobs of a test, and the audit of when they ran: at their time, once, and none left out."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, LiteralString

import psycopg

from stepwell.calendar.schedule import NewSchedule, Overlap
from stepwell.calendar.timing import Interval
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch

from .audit import count, left
from .fleet import until

# What upkeep.py gives the leader.
LEASE = 5.0
# For a machine that has other things to do.
SLACK = 5.0

_OWNER = "crash"
_SCHEMA = "create table crash.due (job_id uuid primary key, run_at timestamptz not null)"
_DELAY = """
    insert into crash.due
    select u.id, u.run_at from unnest(
      stepwell.enqueue_many('{quick}', array_fill('{}'::text, array[%(jobs)s]), _run_ats => %(run_ats)s),
      %(run_ats)s::timestamptz[]
    ) as u (id, run_at)
"""

_CHECKS: Mapping[str, LiteralString] = {
    "a tick that ran twice": """
        select schedule_id, scheduled_for, count(*) from stepwell.history where schedule_id is not null
        group by 1, 2 having count(*) > 1""",
    "a tick without its run": """
        select t.schedule_id, t.at from stepwell.tick t
        where t.job_id is not null and not exists (select from stepwell.history h where h.id = t.job_id)""",
    "a run without its tick": """
        select h.id, h.scheduled_for from stepwell.history h
        where h.schedule_id is not null and not exists (select from stepwell.tick t where t.job_id = h.id)""",
    "a tick that was left out": """
        select t.name, t.before, t.at from (
          select s.name, s.every, t.at, lag(t.at) over (partition by s.id order by t.at) as before
          from stepwell.schedule s join stepwell.tick t on t.schedule_id = s.id
          where s.catchup > 1
        ) t where t.at - t.before <> t.every * interval '1 second'""",
    "a tick before its time": "select schedule_id, at, handled_at from stepwell.tick where handled_at < at",
    "a delayed job that is not in history": """
        select d.job_id from crash.due d where not exists (select from stepwell.history h where h.id = d.job_id)""",
}
_LATE = """
    select d.what, d.due, l.at, extract(epoch from l.at - d.due)::float8 from (
      select job_id, 'delayed' as what, run_at as due from crash.due
      union all
      select h.id, 'tick', h.scheduled_for from stepwell.history h where h.schedule_id is not null
    ) d
    cross join lateral (
      select l.at, l.pid from crash.ledger l where l.job_id = d.job_id and l.phase = 'start' order by l.at limit 1
    ) l
    where l.pid <> all (%s)
"""


class Timetable:
    """What is due in a test's database. All of it is the task `quick`."""

    def __init__(self, witness: psycopg.Connection[Any]) -> None:
        self._witness = witness
        self._names: list[str] = []
        witness.execute(_SCHEMA)

    def schedule(self, every: float, *, overlap: Overlap = "allow", catchup: int = 1000, ms: int = 0) -> None:
        """Add a schedule. With a `catchup` of more than 1 no tick may be left out."""
        name = f"{overlap} every {every:g} s, {len(self._names)}"
        timing = Interval(every)
        [now] = fetch(self._witness, queries.reads.clock())
        schedule = NewSchedule(name, "quick", f'{{"ms": {ms}}}', "default", 0, timing, overlap, catchup, 0.0)
        fetch(self._witness, queries.schedules.put_schedules(_OWNER, [schedule], [timing.after(now)], declared=False))
        self._names.append(name)

    def delay(self, jobs: int, longest: float) -> None:
        """Put jobs in that are due one after the other in so many seconds."""
        [now] = fetch(self._witness, queries.reads.clock())
        run_ats = [now + timedelta(seconds=longest * (n + random.random()) / jobs) for n in range(jobs)]
        self._witness.execute(_DELAY, {"jobs": jobs, "run_ats": run_ats})

    def ticks(self) -> int:
        """How many ticks were fired."""
        return count(self._witness, "select count(*) from stepwell.tick")

    def await_ticks(self, more: int = 3) -> None:
        """Wait until so many more have been fired."""
        wanted = self.ticks() + more
        until(lambda: self.ticks() >= wanted, f"{more} more ticks are fired")

    def finish(self) -> None:
        """Fire no more, and wait until all that was due has run."""
        for name in self._names:
            fetch(self._witness, queries.schedules.pause_schedule(_OWNER, name))
        until(lambda: not left(self._witness), "all jobs are done")

    def audit(self, *, within: float | None = None, but_by: Collection[int] = (), early: bool = False) -> None:
        """Check what must hold when all is done. `within`: how many seconds late a tick may be fired, and a job begin,
        unless one of the processes `but_by` had it in hand. `early`: they may be before their time."""
        wrong = {what: found for what, query in _CHECKS.items() if (found := self._witness.execute(query).fetchall())}
        assert not wrong, wrong
        began = self._witness.execute(_LATE, (list(but_by),)).fetchall()
        assert began
        too_soon = [row for row in began if row[3] < 0]
        assert early or not too_soon, too_soon[:3]
        fired = "select coalesce(extract(epoch from max(handled_at - at)), 0)::float8 from stepwell.tick"
        latest = max([row[3] for row in began] + [row[0] for row in self._witness.execute(fired)])
        print(f"at most {latest:.2f} s late")
        assert within is None or latest < within
