"""Groups whose workers are killed: every callback runs exactly once, with the right counts."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest

from stepwell import App, Context, Group, GroupSummary

from .fleet import WorkerProcess, until

pytestmark = pytest.mark.crash

_PROGRAM = Path(__file__).with_name("group_program.py")
_TABLES = """
create table told (
  group_id uuid not null, total int not null, succeeded int not null, failed int not null, cancelled int not null,
  failures int not null
);
create table paid (job_id uuid not null)
"""
_CHECKS: dict[str, LiteralString] = {
    "a callback did not run exactly once": """
        select g.id, g.total, g.finished_at, count(t.group_id) from stepwell.job_group g
        left join told t on t.group_id = g.id group by g.id having count(t.group_id) <> 1""",
    "a callback ran for a group that is not there": """
        select t.* from told t where not exists (select from stepwell.job_group g where g.id = t.group_id)""",
    "counts do not add up to the total": """
        select t.* from told t join stepwell.job_group g on g.id = t.group_id
        where t.succeeded + t.failed + t.cancelled <> t.total or t.total <> g.total
          or (t.succeeded, t.failed, t.cancelled) is distinct from (g.succeeded, g.failed, g.cancelled)
          or t.failures <> least(t.failed, 10)""",
    "counts are left over": "select * from stepwell.group_tally",
    "a callback was started, and its group has not ended": """
        select g.* from stepwell.job_group g where g.then_started and g.finished_at is null""",
    "a job is live": "select j.id, j.state, j.task from stepwell.job j",
}
_EXACT: dict[str, LiteralString] = {
    "counts are not those of history": """
        select t.*, h.succeeded, h.failed, h.cancelled from told t
        cross join lateral (
          select count(*) filter (where h.state = 'succeeded') as succeeded,
            count(*) filter (where h.state = 'failed') as failed,
            count(*) filter (where h.state = 'cancelled') as cancelled,
            count(*) filter (where h.task = 'forgotten') as forgotten
          from stepwell.history h where h.group_id = t.group_id
        ) h
        where (t.failed, t.cancelled) is distinct from (h.failed, h.cancelled)
          -- Each tenth is kept only if it was cancelled.
          or t.succeeded - h.succeeded <> t.total / 10 - h.forgotten""",
    "a member in a transaction was not paid exactly once": """
        select h.id, h.state, count(p.job_id) from stepwell.history h left join paid p on p.job_id = h.id
        where h.task = 'in_transaction' group by h.id, h.state
        having count(p.job_id) <> (h.state = 'succeeded')::integer""",
}


class Crew:
    """Workers that are killed and replaced."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._all: list[WorkerProcess] = []

    def launch(self) -> WorkerProcess:
        self._all.append(WorkerProcess(_PROGRAM, {"dsn": self._dsn}))
        return self._all[-1]

    @property
    def alive(self) -> list[WorkerProcess]:
        return [worker for worker in self._all if worker.alive]

    def kill_one_that_runs_jobs(self, conn: psycopg.Connection[Any], dice: random.Random) -> None:
        def victims() -> list[WorkerProcess]:
            busy = conn.execute(
                "select distinct w.pid from stepwell.worker w join stepwell.job j on j.worker_id = w.id"
            ).fetchall()
            return [worker for worker in self.alive if (worker.pid,) in busy]

        dice.choice(until(victims, "a worker runs jobs")).kill()

    def close(self) -> None:
        for worker in self._all:
            worker.close()
            print(f"worker {worker.pid}:", *worker.noise[-40:], sep="\n  ")


@pytest.fixture
def crew(dsn: str, conn: psycopg.Connection[Any]) -> Iterator[Crew]:
    conn.execute(_TABLES)
    crew = Crew(dsn)
    yield crew
    crew.close()


class Maker:
    """Makes groups of members that succeed, fail, are retried, are not kept, or commit with their work."""

    def __init__(self, app: App, dice: random.Random) -> None:
        self._app = app
        self._dice = dice

        @app.task
        def member(n: int) -> int:
            return n

        @app.task(keep=0)
        def forgotten(n: int) -> None: ...

        @app.task(transaction=True)
        def in_transaction(ctx: Context, n: int) -> None: ...

        @app.task
        def tell(summary: GroupSummary) -> None: ...

        self._tasks = [forgotten, *[member] * 4, in_transaction, *[member] * 4]
        self._tell = tell

    def make(self, size: int | None = None) -> Group[None]:
        size = self._dice.choice([0, 10, 10, 40, 300]) if size is None else size
        return self._app.group([self._tasks[n % 10].call(n=n) for n in range(size)], then=self._tell)


@pytest.mark.slow
@pytest.mark.parametrize("retries", [False, True], ids=["", "and_members_retried"])
def test_workers_killed_at_random_moments_start_each_callback_once_with_the_right_counts(
    dsn: str, conn: psycopg.Connection[Any], crew: Crew, dice: random.Random, retries: bool
) -> None:
    for _ in range(3):
        crew.launch()
    for worker in crew.alive:
        until(worker.has_started, "the worker has started")
    with App(dsn) as app:
        maker = Maker(app, dice)
        for _ in range(6):
            groups = [maker.make() for _ in range(6)]
            maker.make(300).cancel()  # on a fast machine, the next one may find no member that has not ended
            time.sleep(dice.uniform(0, 0.4))
            dice.choice(groups).cancel()
            for _ in range(5 if retries else 0):
                app.retry_jobs(task="member")
                time.sleep(dice.uniform(0, 0.1))
            time.sleep(dice.uniform(0, 0.2))
            groups.append(maker.make(300))
            crew.kill_one_that_runs_jobs(conn, dice)
            crew.launch()
    until(lambda: not conn.execute("select 1 from stepwell.job limit 1").fetchone(), "all is done", 60)
    until(lambda: not conn.execute("select 1 from stepwell.group_tally limit 1").fetchone(), "all is counted", 10)
    assert conn.execute("select 1 from stepwell.failure where reason = 'lease_lost' limit 1").fetchone(), "no kill hit"
    assert conn.execute("select 1 from stepwell.history where state = 'cancelled' limit 1").fetchone(), "no cancel hit"
    # A member that is retried when its group has ended is counted as it was.
    checks = _CHECKS if retries else _CHECKS | _EXACT
    wrong = {what: found[:3] for what, query in checks.items() if (found := conn.execute(query).fetchall())}
    assert not wrong


def test_a_group_whose_last_members_end_at_the_same_moment_ends_once(dsn: str, conn: psycopg.Connection[Any]) -> None:
    """Two sessions end the last two members, and neither sees the other's end."""
    with App(dsn) as app:

        @app.task
        def member(n: int) -> None: ...

        @app.task
        def tell(summary: GroupSummary) -> None: ...

        group = app.group([member.call(n) for n in range(2)], then=tell)
    worker = "01a1e0af-c50b-7b66-94ec-ea018e1e252e"
    ids = [str(row[0]) for row in conn.execute("select id from stepwell.job where task = 'member' order by id")]
    conn.execute(
        "update stepwell.job set state = 'running', worker_id = %s, epoch = 1, attempt = 1 where task = 'member'",
        (worker,),
    )
    finish = "select stepwell.finish(array[%s::uuid], '{1}', '{null}', '{60}')"
    with psycopg.connect(dsn) as one, psycopg.connect(dsn) as two:
        one.execute(finish, (ids[0],))
        # It does not wait for the other.
        two.execute("set local lock_timeout = '10s'")
        two.execute(finish, (ids[1],))
        one.commit()
        assert state(conn, group.then.id) == "blocked"
        two.commit()
    assert state(conn, group.then.id) == "blocked"
    assert group.progress().done == 2
    assert conn.execute("select count(*) from stepwell.group_tally").fetchone() == (1,)
    conn.execute("select stepwell.promote()")
    assert state(conn, group.then.id) == "ready"
    assert conn.execute("select count(*) from stepwell.group_tally").fetchone() == (0,)


def test_a_callback_that_is_locked_when_its_group_ends_starts_later(dsn: str, conn: psycopg.Connection[Any]) -> None:
    with App(dsn) as app:

        @app.task
        def tell(summary: GroupSummary) -> None: ...

        @app.task
        def member(n: int) -> None: ...

        group = app.group([member.call(1)], then=tell)
        with psycopg.connect(dsn) as other:
            other.execute("select from stepwell.job where id = %s for update", (group.then.id,))
            assert group.cancel() == 1
            conn.execute("select stepwell.promote()")
            assert state(conn, group.then.id) == "blocked"
            assert group.result(timeout="60s").cancelled == 1
            row = conn.execute("select next_due from stepwell.promote()").fetchone()
            assert row
            assert row[0] < 1, "it looks again soon"
        conn.execute("select stepwell.promote()")
        assert state(conn, group.then.id) == "ready"
        info = group.then.info()
        assert info
        assert info.args["summary"]["cancelled"] == 1


def state(conn: psycopg.Connection[Any], job_id: UUID) -> str:
    row = conn.execute("select state from stepwell.jobs where id = %s", (job_id,)).fetchone()
    assert row
    return row[0]
