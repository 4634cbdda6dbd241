"""Pausing, resuming and stopping: of a queue, a task, a worker, or everything."""

from __future__ import annotations

from typing import LiteralString
from uuid import uuid4

import psycopg
import pytest

from . import calls
from .calls import Connection

CLOCK = 1_800_000_000.0
TASKS = {"work": {"max_attempts": 1.0}, "other": {"max_attempts": 1.0}}


@pytest.fixture
def worker(conn: Connection) -> str:
    calls.set_clock(conn, CLOCK)
    return calls.register_worker(conn, tasks=TASKS)


def tell(conn: Connection, call: LiteralString, worker: str | None = None) -> object:
    """The call of a function; %s stands for the worker."""
    return calls.one(conn.execute("select stepwell." + call, (worker,) if worker else ()))


def names(conn: Connection, worker: str) -> set[tuple[str, str]]:
    """What it claims: one job of each queue and task."""
    for queue in ("default", "mail"):
        for task in ("work", "other"):
            calls.enqueue(conn, task, queue=queue)
    held = calls.claim(conn, worker, queues=("default", "mail"), tasks=("work", "other"))
    conn.execute("delete from stepwell.job")
    return {(job.queue, job.task) for job in held}


ALL = {("default", "work"), ("default", "other"), ("mail", "work"), ("mail", "other")}


@pytest.mark.parametrize(
    ("scope", "left"),
    [
        ("'mail'", {("default", "work"), ("default", "other")}),
        ("_task => 'work'", {("default", "other"), ("mail", "other")}),
        ("_worker => %s", set[tuple[str, str]]()),
        ("_everything => true", set[tuple[str, str]]()),
    ],
)
def test_what_is_paused_is_not_claimed_until_it_is_resumed(
    conn: Connection, worker: str, scope: LiteralString, left: set[tuple[str, str]]
) -> None:
    who = worker if "%s" in scope else None
    tell(conn, "pause(" + scope + ")", who)
    tell(conn, "pause(" + scope + ")", who)
    assert names(conn, worker) == left
    later = calls.register_worker(conn, tasks=TASKS)
    assert names(conn, later) == (ALL if who else left)
    assert tell(conn, "resume(" + scope + ")", who) is True
    assert tell(conn, "resume(" + scope + ")", who) is False
    assert names(conn, worker) == ALL


def test_to_resume_one_thing_is_not_to_resume_another(conn: Connection, worker: str) -> None:
    tell(conn, "pause('mail')")
    tell(conn, "pause(_everything => true)")
    tell(conn, "resume(_everything => true)")
    assert names(conn, worker) == {("default", "work"), ("default", "other")}


def test_a_renewal_tells_what_is_asked(conn: Connection, worker: str) -> None:
    def asked() -> object:
        return conn.execute(
            "select paused, paused_queues, paused_tasks, stopping from stepwell.renew(%s::uuid, 60, 0)", (worker,)
        ).fetchone()

    assert asked() == (False, [], [], False)
    tell(conn, "pause('mail')")
    tell(conn, "pause(_task => 'work')")
    assert asked() == (False, ["mail"], ["work"], False)
    tell(conn, "pause(_worker => %s)", worker)
    tell(conn, "stop(_everything => true)")
    assert asked() == (True, ["mail"], ["work"], True)


@pytest.mark.parametrize(
    ("scope", "told"),
    [
        ("'mail'", {"mail", "pattern", "star"}),
        ("'mail.eu'", {"pattern", "star"}),
        ("_task => 'work'", {"mail", "pattern"}),
        ("_everything => true", {"mail", "pattern", "star"}),
    ],
)
def test_a_stop_is_for_those_that_it_names_and_that_had_started(
    conn: Connection, scope: LiteralString, told: set[str]
) -> None:
    calls.set_clock(conn, CLOCK)
    register = "select stepwell.register_worker(%s, 1, '0', %s, %s, 1, 3600)"
    workers = {"mail": (["mail"], "work"), "pattern": (["a", "mail*"], "work"), "star": (["*"], "other")}
    for name, (queues, task) in workers.items():
        conn.execute(register, (name, queues, f'{{"{task}": {{}}}}'))
    calls.set_clock(conn, CLOCK + 1)
    assert tell(conn, "stop(" + scope + ")") == len(told)
    calls.set_clock(conn, CLOCK + 2)
    conn.execute(register, ("later", ["*", "mail"], '{"work": {}}'))
    rows = conn.execute("select host from stepwell.workers where stopping")
    assert {host for (host,) in rows} == told


def test_a_stop_tells_how_many_it_was_for(conn: Connection, worker: str) -> None:
    assert tell(conn, "stop(_everything => true)") == 1
    assert tell(conn, "stop('nobody')") == 0


@pytest.mark.parametrize("action", ["pause", "resume", "stop"])
def test_a_pattern_is_refused(conn: Connection, action: LiteralString) -> None:
    with pytest.raises(psycopg.Error, match="name each queue") as refused:
        tell(conn, action + "('mail*')")
    assert refused.value.sqlstate == "SW002"


def test_a_worker_whose_every_task_is_paused_claims_nothing(conn: Connection, worker: str) -> None:
    for task in ("work", "other"):
        conn.execute("select stepwell.pause(_task => %s)", (task,))
    assert names(conn, worker) == set()


def test_one_that_registers_anew_under_another_id_is_still_stopped(conn: Connection, worker: str) -> None:
    number = calls.one(conn.execute("select number from stepwell.renew(%s::uuid, 60, 0)", (worker,)))
    tell(conn, "stop(_everything => true)")
    register = "select stepwell.register_worker(%s, 1, '0', '{a}', '{}', 1, 60, _begun => %s)"
    conn.execute(register, ("again", number))
    conn.execute(register, ("new", None))
    rows = conn.execute("select host, stopping from stepwell.workers where host <> 'host' order by 1").fetchall()
    assert rows == [("again", True), ("new", False)]


def test_clocks_that_are_set_do_not_change_whom_a_stop_is_for(conn: Connection) -> None:
    calls.set_clock(conn, CLOCK + 3600)
    early = calls.register_worker(conn)
    calls.set_clock(conn, CLOCK)
    assert tell(conn, "stop(_everything => true)") == 1
    calls.set_clock(conn, CLOCK - 3600)
    later = calls.register_worker(conn)
    rows = conn.execute("select id::text, stopping from stepwell.workers").fetchall()
    assert dict(rows) == {early: True, later: False}


def test_what_was_asked_of_a_worker_leaves_with_it(conn: Connection, worker: str) -> None:
    tell(conn, "pause(_worker => %s)", worker)
    tell(conn, "stop(_worker => %s)", worker)
    calls.unregister_worker(conn, worker)
    assert conn.execute("select * from stepwell.controls").fetchall() == []


@pytest.mark.parametrize("action", ["pause", "resume", "stop"])
@pytest.mark.parametrize("scope", ["", "'mail', 'work'", "'mail', _everything => true"])
def test_exactly_one_scope_must_be_given(conn: Connection, action: LiteralString, scope: LiteralString) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="exactly one of"):
        tell(conn, action + "(" + scope + ")")


def test_a_worker_that_is_not_registered_is_refused(conn: Connection) -> None:
    with pytest.raises(psycopg.Error, match="is registered") as refused:
        tell(conn, "stop(_worker => %s)", str(uuid4()))
    assert refused.value.sqlstate == "SW003"
