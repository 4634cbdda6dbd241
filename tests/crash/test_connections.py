"""Connections that are cut, one after the other, under load: the worker lives on, and so do its jobs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import psycopg
import pytest

from .audit import audit, count, enqueue, enqueue_mixed, left, started
from .fleet import Fleet, until

pytestmark = pytest.mark.crash

# A backend is known by what it did last.
_CONNECTIONS: Mapping[str, str] = {
    "lease": "stepwell.(renew|register_worker)",
    "claims and the rest": "stepwell.(?!renew|register_worker|set_clock)",
    "outcomes": "stepwell.(finish|fail|snooze)",
    "listen": "^listen",
    "pool": "crash.effect|^(begin|commit|rollback)",
}
_CUT = """
select count(pg_terminate_backend(a.pid)) from (
  select a.pid from pg_stat_activity a
  where a.datname = current_database() and a.application_name = 'stepwell' and a.query ~* %s
  order by random() limit %s
) a
"""


def test_no_cut_connection_costs_a_job_or_a_worker(
    witness: psycopg.Connection[Any], fleet: Fleet, dice: random.Random
) -> None:
    workers = [fleet.start(), fleet.start()]
    enqueue(witness, "quick", 4, ms=4000)
    enqueue(witness, "plain", 4, ms=4000)
    for which in dice.sample(list(_CONNECTIONS), len(_CONNECTIONS)) * 3:
        enqueue_mixed(witness, dice, quick=40, plain=20, paid=20, paid_plain=20)

        def cut(which: str = which) -> int:
            if not (found := count(witness, _CUT, _CONNECTIONS[which], 1)):
                # All jobs may be done, and their connections used for something else since.
                enqueue_mixed(witness, dice, quick=1, plain=1, paid=1, paid_plain=1)
            return found

        until(cut, f"the connection for {which} was there to cut")
    until(lambda: not left(witness), "all jobs are done")
    assert all(worker.alive for worker in workers)
    assert not any(worker.heard("LeaseLost") for worker in workers)
    # Only the handler of a transactional task meets the cut itself.
    audit(witness, failures={"error"})
    blamed = """
        select count(*) from stepwell.failure f join stepwell.history h on h.id = f.job_id
        where h.task not in ('paid', 'paid_plain')"""
    assert count(witness, blamed) == 0


@pytest.mark.slow
def test_a_live_worker_is_not_taken_for_dead_when_its_lease_connection_is_cut(
    witness: psycopg.Connection[Any], fleet: Fleet
) -> None:
    # The next renewal is due long after its peer would have missed the lock that went with the connection.
    workers = [fleet.start(lease="20s", renew="5s"), fleet.start(lease="20s", renew="5s")]
    enqueue(witness, "quick", 10, ms=3500)
    until(lambda: started(witness, 1) == 10, "all are running")
    assert count(witness, _CUT, _CONNECTIONS["lease"], 2) == 2
    until(lambda: not left(witness), "all jobs are done")
    assert not any(worker.heard("LeaseLost") for worker in workers)
    audit(witness)
