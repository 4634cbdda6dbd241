"""Tasks inside sessions of SQLAlchemy that are killed before their commit, or lose it: the effect comes once."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from .audit import audit, count, enqueue, left
from .fleet import Fleet, WorkerProcess, until
from .proxy import Proxy

pytestmark = pytest.mark.crash

_TASKS = ("paid_psycopg", "paid_asyncpg", "paid_psycopg2")


def start(fleet: Fleet, dsn: str | None = None) -> WorkerProcess:
    return fleet.start(dsn=dsn, program="session_program.py", lease="6s", renew="2s")


def epochs(witness: psycopg.Connection[Any], failures: set[str]) -> list[int]:
    """In which run each job was done, once all are."""
    until(lambda: not left(witness), "the jobs are done")
    audit(witness, failures=failures)
    return [row[0] for row in witness.execute("select epoch from stepwell.history order by id")]


def test_a_worker_that_is_killed_between_the_handler_and_its_commit_leaves_no_effect(
    witness: psycopg.Connection[Any], fleet: Fleet, dsn: str
) -> None:
    worker = start(fleet)
    with psycopg.connect(dsn) as holder:
        # The completion, which comes after the handler and before the commit, waits for this.
        holder.execute("lock table stepwell.history in exclusive mode")
        for task in _TASKS:
            enqueue(witness, task, 1)
        waiting = (
            "select count(*) from pg_stat_activity where datname = current_database()"
            " and wait_event_type = 'Lock' and query ~ 'stepwell.finish'"
        )
        until(lambda: count(witness, waiting) == 3, "the handlers have ended")
        worker.kill()
    start(fleet)
    assert epochs(witness, {"lease_lost"}) == [2, 2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["reply", "request"])
def test_a_commit_that_is_lost_is_looked_up(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy, loss: Any
) -> None:
    worker = start(fleet, proxy.dsn)
    for task in _TASKS:
        enqueue(witness, task, 1)
    until(lambda: not left(witness), "it is warm")
    for task in _TASKS:
        proxy.lose(loss, "COMMIT")
        enqueue(witness, task, 1)
        until(proxy.lost.is_set, "it is lost")
        until(lambda: not left(witness), "it is done")
    assert epochs(witness, {"error"}) == [1, 1, 1] + [1 if loss == "reply" else 2] * 3
    assert bool(worker.heard("AttemptFailed")) == (loss == "request"), "it guessed"
