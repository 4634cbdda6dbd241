"""Workers that are killed: nothing is lost, and the others take over in seconds."""

from __future__ import annotations

import random
import signal
import time
from typing import Any

import psycopg
import pytest

from .audit import audit, count, enqueue, left
from .fleet import Fleet, until

pytestmark = pytest.mark.crash


def test_workers_killed_at_random_moments_lose_nothing(
    witness: psycopg.Connection[Any], fleet: Fleet, dice: random.Random
) -> None:
    settings = {"lease": "6s", "renew": "2s"}
    fleet.start(3, **settings)
    for _ in range(8):
        for task in ("quick", "plain", "paid", "paid_plain"):
            enqueue(witness, task, [{"ms": dice.randrange(20)} for _ in range(40)])
        time.sleep(dice.uniform(0, 0.5))
        dice.choice(fleet.alive).kill()
        fleet.launch(**settings)
    until(lambda: not left(witness), "all jobs are done")
    assert count(witness, "select count(*) from stepwell.failure"), "no kill hit a job"
    audit(witness, failures={"lease_lost"})


def test_the_survivor_takes_over_within_three_seconds_long_before_the_lease_ends(
    witness: psycopg.Connection[Any], fleet: Fleet
) -> None:
    took: list[float] = []
    (victim,) = fleet.start()
    for task in ("held", "held_plain"):
        enqueue(witness, task, [{"until": 3}] * 5)
    for epoch in (1, 2):
        started = "select count(*) from crash.ledger where phase = 'start' and epoch = %s"
        until(lambda: count(witness, started, epoch) == 10, "the victim runs them all")  # noqa: B023
        (survivor,) = fleet.start()
        killed_at = witness.execute("select clock_timestamp()").fetchone()
        victim.kill()
        until(lambda: count(witness, started, epoch + 1) == 10, "the survivor runs them all")  # noqa: B023
        row = witness.execute(
            "select extract(epoch from max(at) - %s)::float8 from crash.ledger where phase = 'start' and epoch = %s",
            [*(killed_at or ()), epoch + 1],
        ).fetchone()
        assert row
        took.append(row[0])
        victim = survivor
    until(lambda: not left(witness), "all jobs are done")
    print(f"PICKUP {took}")
    assert max(took) < 3, f"taken over after {took} s"
    audit(witness, failures={"lease_lost"})


def test_a_job_that_kills_its_worker_every_time_fails_for_good(witness: psycopg.Connection[Any], fleet: Fleet) -> None:
    (poison,) = enqueue(witness, "poison", [{}])
    enqueue(witness, "quick", [{"ms": 5}] * 50)
    deaths = 0

    def over() -> bool:
        nonlocal deaths
        if not fleet.alive:
            fleet.launch(lease="6s", renew="2s")
            deaths = len(fleet.all) - 1
        return not left(witness)

    until(over, "the poison has failed and the rest is done")
    assert deaths == 3
    ended = witness.execute("select state, attempt, error from stepwell.history where id = %s", (poison,)).fetchone()
    assert ended
    assert ended[:2] == ("failed", 3)
    assert "died while it ran this job" in ended[2]
    # It is gone for good: the worker that is left goes on with others.
    enqueue(witness, "quick", [{}] * 50)
    until(lambda: not left(witness), "the others are done")
    assert fleet.alive
    audit(witness, failures={"lease_lost"})
    (survivor,) = fleet.alive
    survivor.send(signal.SIGTERM)
    assert survivor.wait() == 0
