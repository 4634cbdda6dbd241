"""Workers that fall silent and come back: what they lost does not count any more, and they go on."""

from __future__ import annotations

import signal
from typing import Any

import psycopg
import pytest

from .audit import audit, count, enqueue, left, started
from .fleet import Fleet, until

pytestmark = pytest.mark.crash


def test_a_worker_stopped_past_its_lease_is_refused_and_starts_anew(
    witness: psycopg.Connection[Any], fleet: Fleet
) -> None:
    stopped = fleet.start(lease="3s", renew="1s", concurrency=20)
    enqueue(witness, "held", 3, until=2)
    # Long enough to be still running when the worker is stopped, also on a busy machine.
    for task in ("quick", "plain", "paid_plain"):
        enqueue(witness, task, 3, ms=3000)
    until(lambda: started(witness, 1) == 12, "all are running")
    stopped.send(signal.SIGSTOP)
    other = fleet.start(lease="3s", renew="1s", concurrency=20)
    until(lambda: not left(witness), "the other has done what the stopped one held")

    stopped.send(signal.SIGCONT)
    until(lambda: stopped.heard("LeaseLost"), "it notices")
    until(lambda: stopped.heard("OutcomeRefused"), "its late outcomes are refused")
    late = "select count(*) from crash.fenced where epoch = 1 and not accepted"
    until(lambda: count(witness, late), "its late writes are refused")

    other.send(signal.SIGTERM)
    assert other.wait() == 0
    enqueue(witness, "quick", 100)
    until(lambda: not left(witness), "it works again")
    # The leader removes the row of the lost lease in its next round, a second later at most.
    until(lambda: count(witness, "select count(*) from stepwell.worker") == 1, "the row of the lost lease is gone")
    (worker,) = witness.execute("select id::text, pid from stepwell.worker").fetchall()
    assert worker[0] != stopped.heard("WorkerStarted")[0]["worker_id"]
    assert worker[1] == stopped.pid
    stopped.send(signal.SIGTERM)
    assert stopped.wait() == 0
    assert not stopped.noise
    audit(witness, failures={"lease_lost"})


@pytest.mark.slow
def test_a_worker_stopped_for_less_than_its_lease_loses_nothing(witness: psycopg.Connection[Any], fleet: Fleet) -> None:
    stopped = fleet.start(lease="6s", renew="1s")
    fleet.start(lease="6s", renew="1s")
    enqueue(witness, "quick", 20, ms=100)
    enqueue(witness, "plain", 20, ms=100)
    until(lambda: started(witness, 1), "they are running")
    stopped.send(signal.SIGSTOP)
    silent = "select count(*) from stepwell.worker where pid = %s and renewed_at < clock_timestamp() - interval '2s'"
    until(lambda: count(witness, silent, stopped.pid), "it has missed a renewal")
    stopped.send(signal.SIGCONT)
    until(lambda: not left(witness), "all jobs are done")
    assert not stopped.heard("LeaseLost")
    audit(witness)


@pytest.mark.slow
def test_a_worker_stopped_past_its_lease_that_nobody_missed_goes_on(
    witness: psycopg.Connection[Any], fleet: Fleet
) -> None:
    worker = fleet.start(lease="1.5s", renew="0.5s")
    worker.send(signal.SIGSTOP)
    over = "select count(*) from stepwell.worker where lease_until < clock_timestamp()"
    until(lambda: count(witness, over), "its lease is over")
    enqueue(witness, "quick", 100)
    worker.send(signal.SIGCONT)
    until(lambda: not left(witness), "all jobs are done", 10)
    # When it wakes, its renewal may still revive the old lease, and a claim under it go through, in the moment in which
    # it gives that lease up by its own clock. What that claim took is rescued like anything a lost lease held.
    audit(witness, failures=["lease_lost"])


@pytest.mark.slow
def test_a_worker_that_gets_the_job_it_lost_runs_it_beside_the_old_run(
    witness: psycopg.Connection[Any], fleet: Fleet
) -> None:
    worker = fleet.start(lease="1.5s", renew="0.5s")
    enqueue(witness, "plain", 3, ms=3500)
    until(lambda: started(witness, 1) == 3, "all are running")
    worker.send(signal.SIGSTOP)
    until(lambda: count(witness, "select cardinality(stepwell.rescue())") == 3, "they are rescued")
    worker.send(signal.SIGCONT)
    until(lambda: started(witness, 2) == 3, "it runs them again")
    runs = "select count(*) from crash.ledger where phase = 'end'"
    assert count(witness, runs) == 0, "the old runs have ended"
    until(lambda: not left(witness), "all jobs are done")
    until(lambda: count(witness, runs) == 6, "all runs have ended")
    # All its slots are free again.
    enqueue(witness, "held", 10, until=2)
    running = "select count(*) from stepwell.job where state = 'running'"
    until(lambda: count(witness, running) == 10, "all are running")
    worker.send(signal.SIGTERM)
    until(lambda: worker.heard("WorkerStopping"), "it stops")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert not worker.noise
    fleet.start()
    until(lambda: not left(witness), "all jobs are done")
    audit(witness, failures={"lease_lost"})
