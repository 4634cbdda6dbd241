"""Clean shutdowns under load: no attempt is used, and everything is done in the end."""

from __future__ import annotations

import random
import signal
from typing import Any

import psycopg
import pytest

from .audit import audit, count, ended, enqueue, enqueue_mixed, left, started
from .fleet import Fleet, until

pytestmark = pytest.mark.crash


@pytest.mark.slow
def test_a_shutdown_under_load_uses_no_attempt(
    witness: psycopg.Connection[Any], fleet: Fleet, dice: random.Random
) -> None:
    workers = [fleet.start(), fleet.start()]
    for _ in range(4):
        enqueue_mixed(witness, dice, quick=250, plain=50, paid=25, paid_plain=25)
        enough = ended(witness) + dice.randrange(1, 150)
        until(lambda enough=enough: ended(witness) > enough, "some are done")
        leaving = workers.pop(0)
        leaving.send(signal.SIGTERM)
        workers.append(fleet.launch())
        assert leaving.wait() == 0
        assert not leaving.noise
    until(lambda: not left(witness), "all jobs are done")
    for worker in workers:
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    assert any(worker.heard("JobsHandedBack") for worker in fleet.all), "no worker had prefetched anything"
    assert count(witness, "select count(*) from stepwell.worker") == 0
    audit(witness)


def test_a_second_signal_hands_running_jobs_back_and_uses_no_attempt(
    witness: psycopg.Connection[Any], fleet: Fleet
) -> None:
    leaving = fleet.start(concurrency=12)
    for task in ("held", "held_plain", "held_paid"):
        enqueue(witness, task, 3, until=2)
    until(lambda: started(witness, 1) == 9, "all are running")
    leaving.send(signal.SIGTERM)
    until(lambda: leaving.heard("WorkerStopping"), "it waits for them")
    enqueue(witness, "quick", 20)
    leaving.send(signal.SIGTERM)
    assert leaving.wait() == 0
    assert not leaving.noise
    assert count(witness, "select count(*) from stepwell.job where state = 'ready' and attempt = 0") == 29
    fleet.start()
    until(lambda: not left(witness), "all jobs are done")
    assert count(witness, "select count(*) from stepwell.history where attempt = 1 and epoch = 2") == 9
    audit(witness)
