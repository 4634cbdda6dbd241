"""Limits and rates while workers are killed: never exceeded, and no place is lost."""

from __future__ import annotations

import random
import time
from typing import Any

import msgspec
import psycopg
import pytest

from stepwell.values.admission import Admission, StoredFair, StoredLimit, StoredRate
from stepwell.values.policy import JobPolicy

from .audit import audit, count, left
from .fleet import Fleet, until

pytestmark = pytest.mark.crash

_BURST = 10
_INTERVAL = 0.01
# From the start of a run to its end or, if it was killed, to its rescue, which returns its permit.
_AT_ONCE = """
with run as (
  select j.key, l.at as began, coalesce(min(e.at), min(f.failed_at)) as ended
  from crash.ledger l
  join (
    select h.id, r ->> 'key' as key from stepwell.history h
    cross join lateral json_array_elements(h.admission -> 'limits') as r
  ) j on j.id = l.job_id
  left join crash.ledger e on e.run = l.run and e.phase <> 'start'
  left join stepwell.failure f on f.job_id = l.job_id and f.epoch = l.epoch
  where l.phase = 'start'
  group by j.key, l.at, l.run
), change as (
  select key, began as at, 1 as by from run union all select key, ended, -1 from run
), at_once as (
  select key, sum(by) over (partition by key order by at, by) as runs from change
)
select key, max(runs)::integer from at_once group by key
"""


def put(witness: psycopg.Connection[Any], dice: random.Random, jobs: int) -> None:
    policies = list[str | None]()
    for _ in range(jobs):
        key = f"k{dice.randrange(4)}"
        limits = [StoredLimit(key, int(key[1]) + 1, hold=key == "k3")]
        if key == "k2" and dice.random() < 0.5:
            limits.append(StoredLimit("both", 1))
        rates = (StoredRate("rate", _INTERVAL, _BURST),) if key == "k1" else ()
        fair = StoredFair(dice.choice("abc")) if key == "k0" else None
        policies.append(JobPolicy(admission=Admission(None, tuple(limits), rates, fair)).encoded())
    args = [msgspec.json.encode({"ms": dice.randrange(20)}).decode() for _ in policies]
    witness.execute(
        "insert into crash.enqueued"
        " select unnest(stepwell.enqueue_many('{quick}', %s::text[], _policies => %s::text[]))",
        (args, policies),
    )


def test_no_limit_is_exceeded_and_no_place_is_lost_while_workers_are_killed(
    witness: psycopg.Connection[Any], fleet: Fleet, dice: random.Random
) -> None:
    for _ in range(3):
        fleet.start(lease="6s", renew="2s")
    for _ in range(4):
        put(witness, dice, 60)
        time.sleep(dice.uniform(0.1, 0.6))
        dice.choice(fleet.alive).kill()
        fleet.launch(lease="6s", renew="2s")
    until(lambda: not left(witness), "all jobs are done")
    audit(witness, failures={"lease_lost"})
    most = dict(witness.execute(_AT_ONCE).fetchall())
    assert all(most[key] <= limit for key, limit in {"k0": 1, "k1": 2, "k2": 3, "k3": 4, "both": 1}.items()), most
    assert count(witness, "select count(*) from stepwell.permit") == 0
    assert count(witness, "select count(*) from stepwell.job where blocked_by is not null") == 0
    # The claim uses the token. On a busy machine the run may begin any time later.
    claims = [
        row[0]
        for row in witness.execute(
            "select extract(epoch from c.at)::float8 from stepwell.history h"
            " cross join lateral (select h.claimed_at union all"
            " select f.claimed_at from stepwell.failure f where f.job_id = h.id and f.epoch < h.epoch) as c (at)"
            " where h.admission -> 'rates' is not null and c.at is not null order by 1"
        )
    ]
    assert claims
    for first, at in enumerate(claims):
        for last in range(first, len(claims)):
            assert last - first + 1 <= _BURST + (claims[last] - at) / _INTERVAL + 1e-3
