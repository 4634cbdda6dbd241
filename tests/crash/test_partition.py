"""A network that swallows everything and says nothing: the worker stops its jobs before others may take them."""

from __future__ import annotations

import signal
from typing import Any

import psycopg
import pytest

from .audit import audit, count, enqueue, left, started
from .fleet import Fleet, until
from .proxy import Proxy

pytestmark = pytest.mark.crash


@pytest.mark.slow
def test_a_worker_cut_off_stops_its_jobs_before_its_lease_ends_and_goes_on_afterwards(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy
) -> None:
    cut_off = fleet.start(dsn=proxy.dsn, lease="3s", renew="1s")
    for task in ("held", "held_plain"):
        enqueue(witness, task, 3, until=2)
    until(lambda: started(witness, 1) == 6, "all are running")
    proxy.part()
    other = fleet.start(lease="3s", renew="1s")
    until(lambda: started(witness, 2) == 6, "the other runs them")
    assert cut_off.heard("LeaseLost")
    overlap = """
        select count(*) from crash.ledger n where n.phase = 'start' and n.epoch = 2 and not exists (
          select from crash.ledger o
          where o.job_id = n.job_id and o.epoch = 1 and o.phase = 'stopped' and o.at < n.at)"""
    assert count(witness, overlap) == 0, "a job was run elsewhere before it was stopped here"

    proxy.heal()
    anew = "select count(*) from stepwell.worker where pid = %s and lease_until > clock_timestamp()"
    until(lambda: count(witness, anew, cut_off.pid), "it has registered anew")
    other.send(signal.SIGTERM)
    assert other.wait() == 0
    enqueue(witness, "quick", 50)
    until(lambda: not left(witness), "it works again")
    cut_off.send(signal.SIGTERM)
    assert cut_off.wait() == 0
    assert not cut_off.noise
    audit(witness, failures={"lease_lost"})


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["claim", "finish"])
def test_a_worker_cut_off_while_the_server_holds_locks_for_it_holds_up_nobody(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy, statement: str
) -> None:
    cut_off = fleet.start(dsn=proxy.dsn, lease="3s", renew="1s")
    enqueue(witness, "held", 3, until=2)
    until(lambda: started(witness, 1) == 3, "it runs some")
    if statement == "claim":
        # The server cannot even finish its reply. No other claim will do: most of them find nothing.
        proxy.lose("long reply", "stepwell.claim_jobs(")
        stuck = enqueue(witness, "held", 7, until=1, ballast="." * 200_000)
    else:
        # Its commit never comes.
        proxy.lose("network", "stepwell.finish(")
        stuck = enqueue(witness, "paid", 1)
    until(proxy.lost.is_set, "it is cut off")
    killed = fleet.start(lease="3s", renew="1s")
    enqueue(witness, "held_plain", 3, until=2)
    plain = "select count(*) from stepwell.job j join crash.ledger l on l.job_id = j.id where j.task = 'held_plain'"
    until(lambda: count(witness, plain) == 3, "the other runs some, too")
    fleet.start(lease="3s", renew="1s")
    killed.kill()
    until(lambda: left(witness) == len(stuck), "what both held is done by the third", 15)
    assert cut_off.heard("LeaseLost")
    # Only what is locked waits until the server notices.
    proxy.heal()
    proxy.time_out()
    until(lambda: not left(witness), "all jobs are done")
    audit(witness, failures={"lease_lost"})
