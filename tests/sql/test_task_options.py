"""The queue and priority of a job that names none: those that a live worker has registered for its task."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from . import calls
from .calls import Connection

CLOCK = 1_800_000_000.0


def register(
    conn: Connection,
    tasks: dict[str, Any],
    *,
    owner: str | None = None,
    named: bool | None = False,
    lease: float = 60.0,
) -> None:
    conn.execute(
        "select stepwell.register_worker('host', 1, '0', '{default}', %s::text, 10, %s, _owner => %s::text,"
        " _named => %s::boolean)",
        (json.dumps(tasks), lease, owner, named),
    )


def own(queue: str, priority: int = 0) -> dict[str, Any]:
    return {"max_attempts": 3, "keep_failed": 60, "queue": queue, "priority": priority}


def enqueued(conn: Connection, options: dict[str, Any] | None = None, task: str = "ship") -> tuple[str, int]:
    given = {"queue": None, "priority": None, "owner": None, **(options or {})}
    job_id = calls.one(
        conn.execute(
            "select stepwell.enqueue(%s, queue => %s, priority => %s, owner => %s)",
            (task, given["queue"], given["priority"], given["owner"]),
        )
    )
    row = conn.execute("select queue, priority from stepwell.jobs where id = %s", (job_id,)).fetchone()
    assert row is not None
    return row


def test_a_job_goes_to_the_queue_of_its_task_unless_another_is_named(conn: Connection) -> None:
    register(conn, {"ship": own("parcels", 7), "mail": own("mail")})
    assert enqueued(conn) == ("parcels", 7)
    assert enqueued(conn, {"queue": "slow"}) == ("slow", 7)
    assert enqueued(conn, {"priority": 0}) == ("parcels", 0)
    assert enqueued(conn, task="nobody knows it") == ("default", 0)


def test_the_worker_that_registered_last_decides_while_it_lives(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK)
    register(conn, {"ship": own("old")})
    register(conn, {"ship": own("new")}, lease=10)
    register(conn, {"mail": own("mail")})
    assert enqueued(conn) == ("new", 0)
    calls.set_clock(conn, CLOCK + 11)
    assert enqueued(conn) == ("old", 0)
    calls.set_clock(conn, CLOCK + 61)
    assert enqueued(conn) == ("default", 0)


def test_a_worker_of_schema_6_does_not_know_the_queue_and_is_passed_over(conn: Connection) -> None:
    register(conn, {"ship": own("parcels")})
    register(conn, {"ship": {"max_attempts": 3, "keep_failed": 60}})
    register(conn, {"ship": "queue"})
    assert enqueued(conn) == ("parcels", 0)


def test_a_worker_that_may_not_run_the_job_is_not_asked(conn: Connection) -> None:
    register(conn, {"ship": own("ours")}, owner="shop", named=True)
    register(conn, {"ship": own("theirs")}, owner="depot", named=True)
    assert enqueued(conn, {"owner": "shop"}) == ("ours", 0)
    assert enqueued(conn, {"owner": "nobody"}) == ("default", 0)
    assert enqueued(conn) == ("theirs", 0)
    # An app that was given no name registers its module; its workers run the jobs of no owner only.
    register(conn, {"ship": own("module")}, owner="shop", named=False)
    assert enqueued(conn, {"owner": "shop"}) == ("ours", 0)
    # A worker of schema 5 runs the jobs of every owner.
    register(conn, {"ship": own("any")}, owner="old", named=None)
    assert enqueued(conn, {"owner": "shop"}) == ("any", 0)


@pytest.mark.parametrize(
    "wrong", [{"queue": ""}, {"queue": "x" * 201}, {"priority": 32768}, {"priority": -32768}, {"priority": "NaN"}]
)
def test_an_option_that_no_job_can_have_is_not_registered(conn: Connection, wrong: dict[str, Any]) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="a task's queue must have a name"):
        register(conn, {"ship": {**own("parcels"), **wrong}})
    assert enqueued(conn) == ("default", 0)


def test_the_newest_worker_is_found_without_a_walk_over_the_others(conn: Connection) -> None:
    for _ in range(20):
        register(conn, {"ship": own("parcels")})
    with conn.transaction():
        enqueued(conn)
        read = conn.execute(
            "select seq_scan, idx_tup_fetch from pg_stat_xact_user_tables where relid = 'stepwell.worker'::regclass"
        ).fetchone()
    assert read == (0, 1)
