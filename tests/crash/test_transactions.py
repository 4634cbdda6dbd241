"""Transactional tasks whose connection is lost in the handler, at the commit and after it: the effect comes once."""

from __future__ import annotations

import signal
from typing import Any

import psycopg
import pytest
from psycopg import sql

from .audit import audit, count, enqueue, left
from .fleet import Fleet, WorkerProcess, until
from .proxy import Proxy

pytestmark = [pytest.mark.crash, pytest.mark.parametrize("task", ["paid", "paid_plain"])]

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


def epochs(witness: psycopg.Connection[Any]) -> list[int]:
    """In which run each job was done, once all are."""
    until(lambda: not left(witness), "the jobs are done")
    audit(witness, failures={"error"})
    return [row[0] for row in witness.execute("select epoch from stepwell.history order by id")]


def start(witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy, task: str) -> WorkerProcess:
    """A worker behind the proxy that has its connections open: the next commit is that of the next job."""
    worker = fleet.start(dsn=proxy.dsn)
    enqueue(witness, task, 1)
    until(lambda: not left(witness), "it is warm")
    return worker


def stop(worker: WorkerProcess) -> None:
    """Let it end in order, so that it has said all it had to say."""
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert not worker.noise


def test_a_backend_that_is_ended_in_the_handler_leaves_no_effect_of_that_run(
    witness: psycopg.Connection[Any], fleet: Fleet, task: str
) -> None:
    fleet.start()
    enqueue(witness, f"held_{task}", 3, until=2)
    asleep = f"{_BACKENDS} and wait_event = 'PgSleep'"
    until(lambda: count(witness, f"select count(*) {asleep}") == 3, "the handlers are at work")
    witness.execute(f"select pg_terminate_backend(pid) {asleep}")
    assert epochs(witness) == [2, 2, 2]


def test_a_backend_that_is_ended_at_the_commit_leaves_no_effect_of_that_run(
    witness: psycopg.Connection[Any], fleet: Fleet, task: str
) -> None:
    slow_commits(witness, 60)
    worker = fleet.start()
    enqueue(witness, task, 3)
    until(lambda: count(witness, f"select count(*) {_BACKENDS} and {_COMMITTING}") == 3, "they are at their commits")
    witness.execute(f"select pg_terminate_backend(pid) {_BACKENDS} and {_COMMITTING}")
    assert epochs(witness) == [2, 2, 2]
    stop(worker)


def test_a_commit_whose_reply_is_lost_is_not_done_again(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy, task: str
) -> None:
    worker = start(witness, fleet, proxy, task)
    proxy.lose("reply", "COMMIT")
    enqueue(witness, task, 1)
    assert epochs(witness) == [1, 1]
    until(proxy.lost.is_set, "it was lost")
    stop(worker)
    assert not worker.heard("AttemptFailed"), "it guessed"


def test_a_commit_that_never_reached_the_server_is_done_again(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy, task: str
) -> None:
    start(witness, fleet, proxy, task)
    proxy.lose("request", "COMMIT")
    enqueue(witness, task, 1)
    assert epochs(witness) == [1, 2]
    until(proxy.lost.is_set, "it was lost")


def test_a_commit_still_under_way_when_its_client_is_cut_off_is_waited_for(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy, task: str
) -> None:
    worker = start(witness, fleet, proxy, task)
    slow_commits(witness, 1)
    proxy.lose("client", "COMMIT")
    enqueue(witness, task, 1)
    until(lambda: count(witness, f"select count(*) {_BACKENDS} and {_LOOKING}"), "the worker waits to see how it went")
    assert epochs(witness) == [1, 1]
    stop(worker)
    assert not worker.heard("AttemptFailed"), "it guessed"


def test_a_commit_that_fails_after_its_client_was_cut_off_is_done_again(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy, task: str
) -> None:
    start(witness, fleet, proxy, task)
    slow_commits(witness, 60)
    proxy.lose("client", "COMMIT")
    enqueue(witness, task, 1)
    until(lambda: count(witness, f"select count(*) {_BACKENDS} and {_LOOKING}"), "the worker waits to see how it went")
    witness.execute(f"select pg_terminate_backend(pid) {_BACKENDS} and {_COMMITTING}")
    assert epochs(witness) == [1, 2]
