"""All rules of admission together, under workers that are killed at random: no limit is exceeded, no unique key has two
jobs, every group's callback runs exactly once, and nothing is stuck."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from stepwell import App

from .fleet import WorkerProcess, until
from .flow_program import BURST, INTERVAL, LIMITS, TABLES, build

pytestmark = [pytest.mark.crash, pytest.mark.timeout(0)]

ROUNDS = 60 if os.environ.get("STEPWELL_SWEEP") == "full" else 3
_PROGRAM = Path(__file__).with_name("flow_program.py")
# From the start of a run to its end or, if it was killed, to its rescue, which returns its permits.
_AT_ONCE = """
with run as (
  select j.key, l.at as began, coalesce(min(e.at), min(f.failed_at), max(j.finished_at)) as ended
  from ran l
  join (
    select h.id, h.finished_at, r ->> 'key' as key from stepwell.history h
    cross join lateral json_array_elements(h.admission -> 'limits') as r
  ) j on j.id = l.job_id
  left join ran e on e.job_id = l.job_id and e.epoch = l.epoch and e.phase = 'end'
  left join stepwell.failure f on f.job_id = l.job_id and f.epoch = l.epoch
  where l.phase = 'start'
  group by j.key, l.at, l.job_id, l.epoch
), change as (
  select key, began as at, 1 as by from run union all select key, ended, -1 from run
), at_once as (
  select key, sum(by) over (partition by key order by at, by) as runs from change
)
select key, max(runs)::integer from at_once group by key
"""
# What must never be found, not even for a moment.
_NEVER: dict[str, LiteralString] = {
    "two live jobs of one unique key": """
        select j.task, j.admission #>> '{unique,key}' from stepwell.job j
        where j.admission -> 'unique' is not null and (j.task <> 'waiting' or j.epoch = 0)
        group by 1, 2 having count(*) > 1""",
    "a job that may run, and has no permit": """
        select j.id, j.state, r ->> 'key' from stepwell.job j
        cross join lateral json_array_elements(j.admission -> 'limits') as r
        where j.state in ('ready', 'running')
          and not exists (select from stepwell.permit p where p.job_id = j.id and p.key = r ->> 'key')""",
    "more permits than the limit": """
        select p.key, count(*) from stepwell.permit p where not p.rate group by p.key
        having count(*) > case p.key when 'k0' then 2 when 'all' then 3 else 2 end""",
}
_AT_REST: dict[str, LiteralString] = {
    "a job is live": "select id, state, task, blocked_by from stepwell.job",
    "a permit is left": "select * from stepwell.permit",
    "a unique key is left": "select * from stepwell.unique_key",
    "a group did not call back exactly once": """
        select g.id, count(t.group_id) from stepwell.job_group g left join told t on t.group_id = g.id
        group by g.id having count(t.group_id) <> 1""",
    "counts of a group are left over": "select * from stepwell.group_tally",
    "a job has failed": "select id, task, error from stepwell.history where state = 'failed'",
}


@pytest.fixture
def crew(dsn: str, conn: psycopg.Connection[Any]) -> Iterator[list[WorkerProcess]]:
    conn.execute(TABLES)
    crew: list[WorkerProcess] = []
    yield crew
    for worker in crew:
        worker.close()
        print(f"worker {worker.pid}:", *worker.noise[-40:], sep="\n  ")


def test_a_random_program_of_all_rules_under_kills(
    dsn: str, conn: psycopg.Connection[Any], crew: list[WorkerProcess], dice: random.Random
) -> None:
    app, call = build(dsn)
    conn.execute("select stepwell.set_limit('k0', 1)")
    with app:
        crew += [WorkerProcess(_PROGRAM, {"dsn": dsn}) for _ in range(2)]
        for _ in range(ROUNDS):
            deadline = time.monotonic() + dice.uniform(0.2, 0.8)
            while time.monotonic() < deadline:
                _act(app, call, dice)
                _check(conn, _NEVER)
            until(lambda: [w for w in crew if w.alive and w.heard("WorkerStarted")], "a worker has started")
            dice.choice([worker for worker in crew if worker.alive]).kill()
            crew.append(WorkerProcess(_PROGRAM, {"dsn": dsn}))
        app.schedule_named("limited").pause()
        until(lambda: not conn.execute("select from stepwell.job limit 1").rowcount, "all jobs have ended", 60 + ROUNDS)
    _check(conn, _AT_REST)
    most = dict(conn.execute(_AT_ONCE).fetchall())
    assert most.keys() == LIMITS.keys()
    assert all(most[key] <= limit for key, limit in LIMITS.items()), most
    # The claim uses the token. On a busy machine the run may begin any time later.
    claims = [row[0] for row in conn.execute(
        "select extract(epoch from c.at)::float8 from stepwell.history h"
        " cross join lateral (select h.claimed_at union all"
        " select f.claimed_at from stepwell.failure f where f.job_id = h.id and f.epoch < h.epoch) as c (at)"
        " where h.task = 'rated' and c.at is not null order by 1"
    )]  # fmt: skip
    for first in range(len(claims)):
        for last in range(first, len(claims)):
            assert last - first + 1 <= BURST + (claims[last] - claims[first]) / INTERVAL + 1e-3


def _act(app: App, call: Any, dice: random.Random) -> None:
    chosen = dice.random()
    if chosen < 0.6:
        app.enqueue_many([call(dice) for _ in range(dice.randrange(1, 8))])
    elif chosen < 0.8:
        app.group([call(dice) for _ in range(dice.randrange(6))], then=app.tasks["tell"])
    elif jobs := app.jobs(task=dice.choice(["rated", "waiting"]), limit=5):
        app.job(dice.choice(jobs).id).cancel()


def _check(conn: psycopg.Connection[Any], checks: dict[str, LiteralString]) -> None:
    for what, query in checks.items():
        found = conn.execute(query).fetchall()
        assert not found, f"{what}: {found[:5]}"
