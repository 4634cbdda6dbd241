"""Transactional tasks whose connection is lost in the handler, at the commit and after it: the effect comes once."""

from __future__ import annotations

import signal
from typing import Any

import psycopg
import pytest
from psycopg import sql

from .audit import audit, count, enqueue, left
from .fleet import Fleet, WorkerProcess, until
from .proxy import Loss, Proxy

pytestmark = pytest.mark.crash

_TASKS = ("paid", "paid_plain")
_BACKENDS = "from pg_stat_activity where datname = current_database() and application_name = 'stepwell'"
# Runs at the commit.
_SLOW_COMMIT = """
create function crash.dawdle() returns trigger language plpgsql as $$
begin
  if new.epoch = 1 then
    perform pg_sleep(tg_argv[0]::float8);
  end if;
  return null;
end $$;
create constraint trigger dawdle after insert on crash.effect deferrable initially deferred
for each row execute function crash.dawdle({});
"""
_LOOKING = "(wait_event_type = 'Lock' and query ~ 'still_held')"
_COMMITTING = "(wait_event = 'PgSleep' and query = 'COMMIT')"


def slow_commits(witness: psycopg.Connection[Any], seconds: float) -> None:
    """Let each commit of an effect take its time in the first run."""
    witness.execute(sql.SQL(_SLOW_COMMIT).format(sql.Literal(seconds)))


def start(witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy) -> WorkerProcess:
    """A worker behind the proxy that has its connections open: the next commit is that of the next job."""
    worker = fleet.start(dsn=proxy.dsn)
    for task in _TASKS:
        enqueue(witness, task, 1)
    until(lambda: not left(witness), "it is warm")
    return worker


def lose_commit(witness: psycopg.Connection[Any], proxy: Proxy, task: str, loss: Loss) -> None:
    """Run a job and lose its commit, or the reply to it."""
    proxy.lose(loss, "COMMIT")
    enqueue(witness, task, 1)
    until(proxy.lost.is_set, "it is lost")


def stop(worker: WorkerProcess) -> None:
    """Let it end in order, so that it has said all it had to say."""
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert not worker.noise


def epochs(witness: psycopg.Connection[Any]) -> list[int]:
    """In which run each job was done, once all are."""
    until(lambda: not left(witness), "the jobs are done")
    audit(witness, failures={"error"})
    return [row[0] for row in witness.execute("select epoch from stepwell.history order by id")]


def test_a_backend_that_is_ended_in_the_handler_leaves_no_effect_of_that_run(
    witness: psycopg.Connection[Any], fleet: Fleet
) -> None:
    fleet.start()
    for task in _TASKS:
        enqueue(witness, f"held_{task}", 3, until=2)
    asleep = f"{_BACKENDS} and wait_event = 'PgSleep'"
    until(lambda: count(witness, f"select count(*) {asleep}") == 6, "the handlers are at work")
    witness.execute(f"select pg_terminate_backend(pid) {asleep}")
    assert epochs(witness) == [2] * 6


def test_a_backend_that_is_ended_at_the_commit_leaves_no_effect_of_that_run(
    witness: psycopg.Connection[Any], fleet: Fleet
) -> None:
    slow_commits(witness, 60)
    worker = fleet.start()
    for task in _TASKS:
        enqueue(witness, task, 3)
    until(lambda: count(witness, f"select count(*) {_BACKENDS} and {_COMMITTING}") == 6, "they are at their commits")
    witness.execute(f"select pg_terminate_backend(pid) {_BACKENDS} and {_COMMITTING}")
    assert epochs(witness) == [2] * 6
    stop(worker)


def test_a_commit_whose_reply_is_lost_is_not_done_again(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy
) -> None:
    worker = start(witness, fleet, proxy)
    for task in _TASKS:
        lose_commit(witness, proxy, task, "reply")
    assert epochs(witness) == [1, 1, 1, 1]
    stop(worker)
    assert not worker.heard("AttemptFailed"), "it guessed"


def test_a_commit_that_never_reached_the_server_is_done_again(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy
) -> None:
    start(witness, fleet, proxy)
    for task in _TASKS:
        lose_commit(witness, proxy, task, "request")
    assert epochs(witness) == [1, 1, 2, 2]


@pytest.mark.slow
def test_a_commit_still_under_way_when_its_client_is_cut_off_is_waited_for(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy
) -> None:
    worker = start(witness, fleet, proxy)
    slow_commits(witness, 1)
    for task in _TASKS:
        lose_commit(witness, proxy, task, "client")
        until(lambda: count(witness, f"select count(*) {_BACKENDS} and {_LOOKING}"), "the worker waits to see")
        until(lambda: not left(witness), "it was committed")
    assert epochs(witness) == [1, 1, 1, 1]
    stop(worker)
    assert not worker.heard("AttemptFailed"), "it guessed"


def test_a_commit_that_fails_after_its_client_was_cut_off_is_done_again(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy
) -> None:
    start(witness, fleet, proxy)
    slow_commits(witness, 60)
    for task in _TASKS:
        lose_commit(witness, proxy, task, "client")
        until(lambda: count(witness, f"select count(*) {_BACKENDS} and {_LOOKING}"), "the worker waits to see")
        witness.execute(f"select pg_terminate_backend(pid) {_BACKENDS} and {_COMMITTING}")
        until(lambda: not left(witness), "it was done again")
    assert epochs(witness) == [1, 1, 2, 2]
