"""A statement whose reply is lost was run or was not: the worker must come to the same end either way."""

from __future__ import annotations

import signal
from typing import Any

import psycopg
import pytest

from .audit import audit, count, enqueue, left
from .fleet import Fleet, until
from .proxy import Loss, Proxy

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("loss", ["request", "reply", "client"])
def test_whichever_exchange_is_lost_every_job_is_done(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy, loss: Loss
) -> None:
    worker = fleet.start(dsn=proxy.dsn, lease="6s", renew="0.5s")
    for statements in (["claim_jobs"], ["finish"], ["fail"], ["renew", "lead_and_rescue", "promote"]):
        proxy.lose(loss, *(f"stepwell.{statement}(" for statement in statements))
        enqueue(witness, "quick", 20)
        enqueue(witness, "sour", 5, until=2)
        until(proxy.lost.is_set, f"the {loss} of {statements} is lost")
        until(lambda: not left(witness), f"all jobs are done, though the {loss} of {statements} was lost")
    # What a worker hands back when it stops.
    enqueue(witness, "held", 10, until=2)
    enqueue(witness, "quick", 10)
    running = "select count(*) from crash.ledger l join stepwell.job j on j.id = l.job_id and j.task = 'held'"
    until(lambda: count(witness, running) == 10, "all are running")
    proxy.lose(loss, "stepwell.snooze(")
    worker.send(signal.SIGTERM)
    until(lambda: worker.heard("WorkerStopping"), "it stops")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert proxy.lost.is_set()
    assert not worker.noise
    fleet.start()
    until(lambda: not left(witness), "all jobs are done")
    audit(witness, failures={"error"})


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["request", "reply", "client"])
def test_whichever_claim_of_several_pools_is_lost_no_job_of_another_is_handed_back(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy, loss: Loss
) -> None:
    worker = fleet.start(dsn=proxy.dsn, queues={"default": 3, "mail": 5, "*": 5})
    for statement in ("claim_jobs", "claim_jobs", "first_ready"):
        # These run while the others' claims are lost and the worker reckons what it holds.
        enqueue(witness, "quick", 3, ms=1500)
        until(lambda: running(witness) == 3, "they run")
        proxy.lose(loss, f"stepwell.{statement}(")
        enqueue(witness, "quick", 20, queue="mail")
        enqueue(witness, "quick", 20, queue="new")
        enqueue(witness, "sour", 5, queue="newer", until=2)
        until(proxy.lost.is_set, f"the {loss} of {statement} is lost")
        until(lambda: not left(witness), f"all jobs are done, though the {loss} of {statement} was lost", 6)
    long = "select count(*) from stepwell.history where queue = 'default' and epoch > 1"
    assert count(witness, long) == 0
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert not worker.noise
    audit(witness, failures={"error"})


@pytest.mark.slow
def test_a_claim_that_the_server_makes_long_after_its_client_has_gone_keeps_no_job(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy
) -> None:
    worker = fleet.start(dsn=proxy.dsn, concurrency=1)
    proxy.lose("late", "stepwell.claim_jobs(")
    enqueue(witness, "quick", 1, ms=2000)
    until(lambda: proxy.lost.is_set() and running(witness) == 1, "it is claimed, though its first claim is on its way")
    enqueue(witness, "quick", 1)
    proxy.deliver()
    until(lambda: running(witness) == 2, "the other one is claimed without the worker's knowledge")
    until(lambda: not left(witness), "both are done", 6)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    audit(witness)


def running(conn: psycopg.Connection[Any]) -> int:
    return count(conn, "select count(*) from stepwell.job where queue = 'default' and state = 'running'")
