"""Two workers hold one durable job: nothing that the late one writes counts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from .fleet import WorkerProcess, until

pytestmark = pytest.mark.crash

JOBS = [
    *(
        ("stubborn", what)
        for what in (
            "step", "step that fails", "now", "child", "transaction", "first", "sleep", "wait", "restart", "fail",
            "result",
        )
    ),
    *(("stubborn_plain", what) for what in ("step", "child", "transaction", "sleep", "result")),
    *(("stubborn_chain", what) for what in ("move", "move after")),
    ("stubborn_machine", "move"),
]  # fmt: skip

_EVERYTHING = """
select 'job', j.id::text, j.state::text, j.epoch, j.attempt, j.cursor, j.input::text, j.args::text, j.parent_id::text
from stepwell.job j
union all
select 'step', s.job_id::text, s.key, s.epoch, s.n, s.kind, s.value::text, s.error::text, s.child_id::text
from stepwell.step s
union all
select 'event', e.key, e.name, 0, 0, null, e.value::text, null, null from stepwell.event e
union all
select 'effect', e.job_id::text, null, e.epoch, 0, null, null, null, null from zombie.effect e
union all
select 'history', h.id::text, h.state::text, h.epoch, 0, null, h.result::text, h.error, null from stepwell.history h
union all
select 'failure', f.job_id::text, f.reason, f.epoch, f.attempt, f.type, null, null, null from stepwell.failure f
order by 1, 2, 3
"""


@pytest.fixture
def workers() -> Iterator[list[WorkerProcess]]:
    started: list[WorkerProcess] = []
    yield started
    for worker in started:
        worker.close()
        print(f"worker {worker.pid}:", *worker.lines[-60:], sep="\n  ")


@pytest.mark.slow
@pytest.mark.parametrize("notices", [True, False], ids=["when it knows", "before it knows"])
def test_what_a_worker_writes_for_jobs_that_it_lost_changes_nothing(
    notices: bool, dsn: str, conn: psycopg.Connection[Any], tmp_path: Path, workers: list[WorkerProcess]
) -> None:
    conn.execute("create schema zombie")
    conn.execute("create table zombie.said (job_id uuid, epoch integer, said text)")
    conn.execute("create table zombie.effect (job_id uuid, epoch integer)")

    def start() -> WorkerProcess:
        settings = {"lease": "1.5s", "renew": "0.5s", "concurrency": 40}
        told: dict[str, object] = {"dsn": dsn, "gates": str(tmp_path), "notices": notices, "settings": settings}
        worker = WorkerProcess(Path(__file__).with_name("durable_program.py"), told)
        workers.append(worker)
        until(worker.has_started, "the worker has started")
        return worker

    def said(epoch: int, what: str = "held") -> list[tuple[str, str]]:
        return conn.execute(
            "select job_id::text, said from zombie.said where epoch = %s and (said = 'held') = %s order by 1",
            (epoch, what == "held"),
        ).fetchall()

    late = start()
    for task, what in JOBS:
        given: object = {"state": {"First": {"what": what}}} if task == "stubborn_machine" else {"what": what}
        conn.execute("select stepwell.enqueue(%s, %s)", (task, msgspec.json.encode(given).decode()))
    until(lambda: len(said(1)) == len(JOBS), "the first runs hold")
    late.send(signal.SIGSTOP)
    start()
    until(lambda: len(said(2)) == len(JOBS), "the second runs hold")
    before = conn.execute(_EVERYTHING).fetchall()

    (tmp_path / "1").touch()
    late.send(signal.SIGCONT)
    until(lambda: len(said(1, "ended")) == len(JOBS), "the first runs have ended")
    until(lambda: late.heard("LeaseLost"), "it notices")
    if notices:
        # Each was told so when it saved, or its outcome was refused; but for a failure, which is not sent any more.
        lost = sum(end == "Lost" for _, end in said(1, "ended"))
        assert lost == 9
        until(lambda: len(late.heard("OutcomeRefused")) == 7, "their outcomes are refused")
    assert conn.execute(_EVERYTHING).fetchall() == before

    (tmp_path / "2").touch()
    until(lambda: conn.execute("select count(*) from stepwell.job").fetchone() == (0,), "all jobs have ended")
    # One that has waited for a child has had a third run.
    wrong = conn.execute(
        "select task, args::text, state::text, result::text, error from stepwell.history"
        " where state <> 'succeeded' or result::text not in ('2', '3')"
    ).fetchall()
    assert wrong == []
    assert conn.execute("select distinct epoch from zombie.effect").fetchall() == [(2,)]
    assert conn.execute("select distinct value::text from stepwell.event").fetchall() == [("2",)]
    assert conn.execute("select distinct args::text from stepwell.history where task = 'child'").fetchall() == [
        ('{"epoch":2}',)
    ]
