"""Transactional tasks whose connection is lost in the handler, at the commit and after it: the effect comes once."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from .audit import audit, count, enqueue, left
from .fleet import Fleet, until
from .proxy import Proxy

pytestmark = [pytest.mark.crash, pytest.mark.parametrize("task", ["paid", "paid_plain"])]

_BACKENDS = "from pg_stat_activity where datname = current_database() and application_name = 'stepwell'"
# Runs at the commit, and takes its time in the first run.
_SLOW_COMMIT = """
create function crash.dawdle() returns trigger language plpgsql as $$
begin
  if new.epoch = 1 then
    perform pg_sleep(%s);
  end if;
  return null;
end $$;
create constraint trigger dawdle after insert on crash.effect deferrable initially deferred
for each row execute function crash.dawdle();
"""
_COMMITTING = "(wait_event = 'PgSleep' and query = 'COMMIT')"


def epochs(witness: psycopg.Connection[Any]) -> list[int]:
    """In which run each job was done, once all are."""
    until(lambda: not left(witness), "the jobs are done")
    audit(witness, failures={"error"})
    return [row[0] for row in witness.execute("select epoch from stepwell.history order by id")]


def test_a_backend_that_is_ended_in_the_handler_leaves_no_effect_of_that_run(
    witness: psycopg.Connection[Any], fleet: Fleet, task: str
) -> None:
    fleet.start()
    enqueue(witness, f"held_{task}", [{"until": 2}] * 3)
    asleep = f"{_BACKENDS} and wait_event = 'PgSleep'"
    until(lambda: count(witness, f"select count(*) {asleep}") == 3, "the handlers are at work")
    witness.execute(f"select pg_terminate_backend(pid) {asleep}")
    assert epochs(witness) == [2, 2, 2]


def test_a_backend_that_is_ended_at_the_commit_leaves_no_effect_of_that_run(
    witness: psycopg.Connection[Any], fleet: Fleet, task: str
) -> None:
    witness.execute(_SLOW_COMMIT % 60)
    fleet.start()
    enqueue(witness, task, [{}] * 3)
    until(lambda: count(witness, f"select count(*) {_BACKENDS} and {_COMMITTING}") == 3, "they are at their commits")
    witness.execute(f"select pg_terminate_backend(pid) {_BACKENDS} and {_COMMITTING}")
    assert epochs(witness) == [2, 2, 2]


def test_a_commit_whose_reply_is_lost_is_not_done_again(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy, task: str
) -> None:
    proxy.lose("reply", "COMMIT")
    fleet.start(dsn=proxy.dsn)
    enqueue(witness, task, [{}])
    assert epochs(witness) == [1]
    assert proxy.lost.is_set()


def test_a_commit_that_never_reached_the_server_is_done_again(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy, task: str
) -> None:
    proxy.lose("request", "COMMIT")
    fleet.start(dsn=proxy.dsn)
    enqueue(witness, task, [{}])
    assert epochs(witness) == [2]
    assert proxy.lost.is_set()


def test_a_commit_still_under_way_when_its_client_is_cut_off_is_waited_for(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy, task: str
) -> None:
    witness.execute(_SLOW_COMMIT % 1)
    proxy.lose("client", "COMMIT")
    fleet.start(dsn=proxy.dsn)
    enqueue(witness, task, [{}])
    until(lambda: count(witness, f"select count(*) {_BACKENDS} and wait_event_type = 'Lock'"), "the worker waits")
    assert epochs(witness) == [1]


def test_a_commit_that_fails_after_its_client_was_cut_off_is_done_again(
    witness: psycopg.Connection[Any], fleet: Fleet, proxy: Proxy, task: str
) -> None:
    witness.execute(_SLOW_COMMIT % 60)
    proxy.lose("client", "COMMIT")
    fleet.start(dsn=proxy.dsn)
    enqueue(witness, task, [{}])
    until(lambda: count(witness, f"select count(*) {_BACKENDS} and wait_event_type = 'Lock'"), "the worker waits")
    witness.execute(f"select pg_terminate_backend(pid) {_BACKENDS} and {_COMMITTING}")
    assert epochs(witness) == [2]
