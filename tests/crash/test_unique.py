"""Workers that are killed while they run unique jobs: no key is lost, none is stuck, none has two jobs."""

from __future__ import annotations

import random
import time
from typing import Any
from uuid import UUID

import psycopg
import pytest

from .audit import audit, count, left, started
from .fleet import Fleet, until

pytestmark = pytest.mark.crash

# A live job whose key is not its own, a key whose job is not live, a key that two jobs have.
_BROKEN = """
select j.id::text from stepwell.job j
left join stepwell.unique_key k on k.key = j.admission #>> '{unique,key}' and k.job_id = j.id
where k.key is null and j.admission -> 'unique' is not null
union all
select k.key from stepwell.unique_key k left join stepwell.job j on j.id = k.job_id where k.live and j.id is null
union all
select j.admission #>> '{unique,key}' from stepwell.job j group by 1 having count(*) > 1 and min(1) is not null
  and j.admission #>> '{unique,key}' is not null
"""


def put(witness: psycopg.Connection[Any], task: str, key: str, args: str = "{}") -> UUID:
    query = "select stepwell.enqueue(%s, %s::text, unique_key => %s)"
    return witness.execute(query, (task, args, key)).fetchall()[0][0]


def test_a_key_stays_taken_over_the_death_of_the_worker_and_is_free_after_the_rescued_run(
    witness: psycopg.Connection[Any], fleet: Fleet
) -> None:
    victim = fleet.start(lease="20s", renew="5s")
    job = put(witness, "held", "k", '{"until": 2}')
    until(lambda: started(witness, 1) == 1, "the victim runs it")
    assert put(witness, "held", "k") == job
    victim.kill()
    assert put(witness, "held", "k") == job
    fleet.start(lease="20s", renew="5s")
    until(lambda: not left(witness), "the survivor has done it")
    assert count(witness, "select count(*) from stepwell.unique_key") == 0
    assert put(witness, "quick", "k") != job
    until(lambda: not left(witness), "the next one is done")
    audit(witness, failures={"lease_lost"})


@pytest.mark.slow
def test_workers_killed_at_random_moments_leave_one_job_per_key(
    witness: psycopg.Connection[Any], fleet: Fleet, dice: random.Random
) -> None:
    for _ in range(2):
        fleet.start(lease="6s", renew="2s")
    made: set[UUID] = set()
    for _ in range(4):
        deadline = time.monotonic() + dice.uniform(0.3, 0.8)
        while time.monotonic() < deadline:
            made.add(put(witness, dice.choice(("quick", "plain")), f"k{dice.randrange(20)}", '{"ms": 20}'))
            assert witness.execute(_BROKEN).fetchall() == []
        dice.choice(fleet.alive).kill()
        fleet.launch(lease="6s", renew="2s")
    until(lambda: not left(witness), "all jobs are done")
    assert len(made) > 40
    assert count(witness, "select count(*) from stepwell.unique_key") == 0
    audit(witness, failures={"lease_lost"})
