"""Workers that are killed in the middle of batches: no job is lost, and none ends twice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, LiteralString

import msgspec
import psycopg
import pytest

from .audit import count
from .fleet import WorkerProcess, until

pytestmark = pytest.mark.crash

_JOBS = 400
_CHECKS: Mapping[str, LiteralString] = {
    "still live": "select id, state from stepwell.job",
    "not once in history": """
        select i.item, count(h.id) from generate_series(1, %(jobs)s) as i (item)
        left join stepwell.history h on (h.args::json ->> 'items')::integer = i.item
        group by i.item having count(h.id) <> 1""",
    "not a success": "select id, state, error from stepwell.history where state <> 'succeeded'",
    "the result is not of a call that ended with this item": """
        select h.id, h.result from stepwell.history h
        where not exists (
          select from crash.batch b where b.item = (h.args::json ->> 'items')::integer and b.phase = 'end'
            and b.call::text = h.result::json #>> '{}')""",
    "ended, and ran again": """
        select b.item, count(*) from crash.batch b where b.phase = 'begin'
          and b.at > (select h.finished_at from stepwell.history h where (h.args::json ->> 'items')::integer = b.item)
        group by b.item""",
    "more calls than claims": """
        select h.id, h.epoch, count(b.call) from stepwell.history h
        join crash.batch b on b.item = (h.args::json ->> 'items')::integer and b.phase = 'begin'
        group by h.id, h.epoch having count(b.call) > h.epoch""",
    "attempts are not failures plus success": """
        select h.id, h.attempt, count(f.job_id) from stepwell.history h left join stepwell.failure f on f.job_id = h.id
        group by h.id, h.attempt having h.attempt <> count(f.job_id) + 1""",
    "a failure that is no lost lease": "select job_id, reason from stepwell.failure where reason <> 'lease_lost'",
}


class _Fleet:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.all: list[WorkerProcess] = []

    def launch(self, seconds: float = 0.1) -> WorkerProcess:
        settings = {"lease": "6s", "renew": "2s", "concurrency": 3}
        told: dict[str, object] = {"dsn": self._dsn, "seconds": seconds, "settings": settings}
        self.all.append(worker := WorkerProcess(Path(__file__).with_name("batch_program.py"), told))
        return worker


@pytest.fixture
def batch_fleet(dsn: str) -> Iterator[_Fleet]:
    fleet = _Fleet(dsn)
    yield fleet
    for worker in fleet.all:
        worker.close()


def test_workers_killed_in_the_middle_of_batches_lose_nothing_and_end_nothing_twice(
    conn: psycopg.Connection[Any], batch_fleet: _Fleet, dice: random.Random
) -> None:
    conn.execute(
        "create schema crash; create table crash.batch (item integer not null, call uuid not null, phase text not null,"
        " pid integer not null, at timestamptz not null default clock_timestamp())"
    )
    conn.execute(
        "select stepwell.enqueue_many(array['noted'], %s::text[])",
        ([msgspec.json.encode({"items": item}).decode() for item in range(1, _JOBS + 1)],),
    )

    def in_the_middle(victim: WorkerProcess) -> bool:
        return bool(
            count(
                conn,
                "select count(*) from crash.batch b where b.pid = %s and b.phase = 'begin' and not exists ("
                " select from crash.batch e where e.call = b.call and e.phase = 'end')",
                victim.pid,
            )
        )

    # The first one cannot end a batch before it is killed; the others may be killed at any moment.
    for seconds in (600, 0.1, 0.1, 0.1):
        victim = batch_fleet.launch(seconds)
        until(lambda victim=victim: in_the_middle(victim) or not _left(conn), "the victim runs a batch")
        conn.execute("select pg_sleep(%s)", (dice.uniform(0, 0.1),))
        victim.kill()
    batch_fleet.launch()
    until(lambda: not _left(conn), "all jobs are done", within=60)
    assert count(conn, "select count(*) from stepwell.failure"), "no kill hit a batch"
    wrong = [
        f"{what}: {len(found)}, such as {found[:3]}"
        for what, check in _CHECKS.items()
        if (found := conn.execute(check, {"jobs": _JOBS}).fetchall())
    ]
    assert not wrong, "\n".join(wrong)
    sizes = conn.execute("select count(*) from crash.batch where phase = 'begin' group by call").fetchall()
    assert max(size for (size,) in sizes) == 20


def _left(conn: psycopg.Connection[Any]) -> int:
    return count(conn, "select count(*) from stepwell.job")
