"""A worker that falls silent past its lease and comes back: its late outcomes do not count, and it goes on."""

from __future__ import annotations

import signal
from typing import Any

import psycopg
import pytest

from .audit import audit, count, enqueue, left
from .fleet import Fleet, until

pytestmark = pytest.mark.crash


def test_a_worker_stopped_past_its_lease_is_refused_and_starts_anew(
    witness: psycopg.Connection[Any], fleet: Fleet
) -> None:
    settings = {"lease": "3s", "renew": "1s", "concurrency": 20}
    (stopped,) = fleet.start(**settings)
    for task in ("quick", "plain", "paid_plain"):
        enqueue(witness, task, [{"ms": 1000}] * 3)
    enqueue(witness, "held", [{"until": 2}] * 3)
    started = "select count(*) from crash.ledger where phase = 'start' and epoch = %s"
    until(lambda: count(witness, started, 1) == 12, "all are running")
    stopped.send(signal.SIGSTOP)
    (other,) = fleet.start(**settings)
    until(lambda: not left(witness), "the other has done what the stopped one held")

    stopped.send(signal.SIGCONT)
    until(lambda: stopped.heard("LeaseLost"), "it notices")
    until(lambda: stopped.heard("OutcomeRefused"), "its late outcomes are refused")
    late = "select count(*) from crash.fenced where epoch = 1 and not accepted"
    until(lambda: count(witness, late), "its late writes are refused")

    other.send(signal.SIGTERM)
    assert other.wait() == 0
    enqueue(witness, "quick", [{}] * 100)
    until(lambda: not left(witness), "it has registered anew and works")
    registered = "select count(*) from stepwell.worker where pid = %s and id <> %s"
    assert count(witness, registered, stopped.pid, stopped.heard("WorkerStarted")[0]["worker_id"]) == 1
    stopped.send(signal.SIGTERM)
    assert stopped.wait() == 0
    assert not stopped.noise
    audit(witness, failures={"lease_lost"})


def test_a_worker_stopped_for_less_than_its_lease_loses_nothing(witness: psycopg.Connection[Any], fleet: Fleet) -> None:
    stopped, _ = fleet.start(2, lease="6s", renew="2s")
    enqueue(witness, "quick", [{"ms": 50}] * 20)
    enqueue(witness, "plain", [{"ms": 50}] * 20)
    until(lambda: count(witness, "select count(*) from crash.ledger"), "they are running")
    for _ in range(3):
        stopped.send(signal.SIGSTOP)
        # Its peer looks for the dead every second.
        looked = "select count(*) from stepwell.worker where pid = %s and renewed_at < clock_timestamp() - interval '2.5s'"
        until(lambda: count(witness, looked, stopped.pid), "it has missed a renewal")
        stopped.send(signal.SIGCONT)
        renewed = "select count(*) from stepwell.worker where pid = %s and renewed_at > clock_timestamp() - interval '1s'"
        until(lambda: count(witness, renewed, stopped.pid), "it has renewed its lease")
    until(lambda: not left(witness), "all jobs are done")
    audit(witness)


def test_a_worker_that_gets_the_job_it_lost_runs_it_beside_the_old_run(
    witness: psycopg.Connection[Any], fleet: Fleet
) -> None:
    (worker,) = fleet.start(lease="1.5s", renew="0.5s")
    enqueue(witness, "plain", [{"ms": 3500}] * 3)
    started = "select count(*) from crash.ledger where phase = 'start' and epoch = %s"
    until(lambda: count(witness, started, 1) == 3, "all are running")
    worker.send(signal.SIGSTOP)
    until(lambda: count(witness, "select cardinality(stepwell.rescue())") == 3, "they are rescued")
    worker.send(signal.SIGCONT)
    until(lambda: count(witness, started, 2) == 3, "it runs them again")
    assert count(witness, "select count(*) from crash.ledger where phase = 'end'") == 0, "the old runs have ended"
    until(lambda: not left(witness), "all jobs are done")
    until(lambda: count(witness, "select count(*) from crash.ledger where phase = 'end'") == 6, "all runs have ended")
    # All its slots are free again.
    enqueue(witness, "held", [{"until": 2}] * 10)
    until(lambda: count(witness, "select count(*) from stepwell.job where state = 'running'") == 10, "all are running")
    worker.send(signal.SIGTERM)
    until(lambda: worker.heard("WorkerStopping"), "it stops")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert not worker.noise
    fleet.start()
    until(lambda: not left(witness), "all jobs are done")
    audit(witness, failures={"lease_lost"})
