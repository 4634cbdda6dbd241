"""Workers that are killed: nothing is lost, and the others take over in seconds."""

from __future__ import annotations

import random
import signal
import time
from typing import Any

import psycopg
import pytest

from .audit import audit, count, enqueue, enqueue_mixed, left, started
from .fleet import Fleet, until

pytestmark = pytest.mark.crash


def test_workers_killed_at_random_moments_lose_nothing(
    witness: psycopg.Connection[Any], fleet: Fleet, dice: random.Random
) -> None:
    for _ in range(3):
        fleet.start(lease="6s", renew="2s")
    # One kill certainly hits a job.
    enqueue(witness, "held", 1, until=2)
    until(lambda: started(witness, 1) == 1, "it is running")
    [(pid,)] = witness.execute("select pid from crash.ledger").fetchall()
    next(worker for worker in fleet.all if worker.pid == pid).kill()
    fleet.launch(lease="6s", renew="2s")
    for _ in range(6):
        enqueue_mixed(witness, dice, quick=60, plain=40, paid=30, paid_plain=30)
        time.sleep(dice.uniform(0, 0.5))
        dice.choice(fleet.alive).kill()
        fleet.launch(lease="6s", renew="2s")
    until(lambda: not left(witness), "all jobs are done")
    assert count(witness, "select count(*) from stepwell.failure")
    audit(witness, failures={"lease_lost"})


@pytest.mark.slow
def test_the_survivor_takes_over_within_three_seconds_long_before_the_lease_ends(
    witness: psycopg.Connection[Any], fleet: Fleet
) -> None:
    victim = fleet.start(lease="20s", renew="5s")
    enqueue(witness, "held", 5, until=2)
    enqueue(witness, "held_plain", 5, until=2)
    until(lambda: started(witness, 1) == 10, "the victim runs them all")
    fleet.start(lease="20s", renew="5s")
    killed_at = witness.execute("select clock_timestamp()").fetchone()
    victim.kill()
    until(lambda: not left(witness), "the survivor has done them")
    assert killed_at
    took = witness.execute(
        "select extract(epoch from max(at) - %s)::float8 from crash.ledger where phase = 'start' and epoch = 2",
        killed_at,
    ).fetchone()
    assert took
    print(f"taken over after {took[0]:.2f} s")
    assert took[0] < 3
    audit(witness, failures={"lease_lost"})


@pytest.mark.slow
def test_a_job_that_kills_its_worker_every_time_fails_for_good(witness: psycopg.Connection[Any], fleet: Fleet) -> None:
    (poison,) = enqueue(witness, "poison", 1)
    enqueue(witness, "quick", 50, ms=5)

    def over() -> bool:
        if not fleet.alive:
            fleet.launch(lease="6s", renew="2s")
        return not left(witness)

    until(over, "the poison has failed and the rest is done")
    assert len(fleet.all) == 4, "one worker for each attempt, and the one that is left"
    row = witness.execute("select state, attempt, error from stepwell.history where id = %s", (poison,)).fetchone()
    assert row
    assert row[:2] == ("failed", 3)
    assert "died while it ran this job" in row[2]
    # It does not come back: the worker that is left goes on with others.
    enqueue(witness, "quick", 50)
    until(lambda: not left(witness), "the others are done")
    (survivor,) = fleet.alive
    survivor.send(signal.SIGTERM)
    assert survivor.wait() == 0
    audit(witness, failures={"lease_lost"})
