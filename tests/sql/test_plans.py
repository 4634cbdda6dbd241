"""The ways that the functions take through 100,000 jobs, whatever the statistics say.

A function's plans cannot be explained from outside, and auto_explain is not in every Postgres. But Postgres counts, for
the transaction under way, each scan of an index or table and what it read. That is what a plan is feared for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.outcomes import Move
from stepwell.postgres.queries.search import MOST_LOOKED_AT, JobMatch
from tests.databases import create_database, drop_database

from . import calls
from .calls import FRONT, Connection, Held

Result = TypeVar("Result")

WAYS = {
    "claim": {"job_ready"},
    "claim after a position": {"job_ready"},
    "ready_queues": {"job_ready"},
    "first_ready": {"job_ready"},
    "still_held": {"job_pkey"},
    "report_progress": {"job_pkey"},
    "finish": {"job_pkey"},
    "fail": {"job_pkey", "job_parent"},
    "fail for good": {"job_pkey", "job_parent"},
    "snooze": {"job_pkey"},
    "suspend": {"job_pkey"},
    "advance": {"job_pkey"},
    "restart": {"job_pkey"},
    "fork": {"job_pkey"},
    "cancel": {"job_pkey", "job_parent"},
    "renew": {"job_cancelling"},
    "results": {"job_pkey"},
    "job_changes": {"job_pkey"},
    "retry": {"job_pkey"},
    "hold_misfits": {"job_pkey"},
    "run_now": {"job_pkey"},
    "edit_args": {"job_pkey"},
    "find any jobs": {"job_pkey"},
    "find ready jobs of a task": {"job_pkey"},
    "find failed jobs": set[str](),
    "find succeeded jobs": set[str](),
    "find running jobs": {"job_running"},
    "find jobs that are not there": {"job_pkey"},
    "find jobs by the error of their last attempt": {"job_pkey"},
    "promote": {"job_due", "job_misfit"},
    "unregister_worker": {"job_running", "job_pkey", "job_parent"},
    "rescue": set[str](),
    "rescue_unregistered": {"job_running"},
    "rescue from a dead worker": {"job_running", "job_pkey", "job_parent"},
    "hand_back_unknown": {"job_running", "job_pkey"},
}
SMALL = {"clock", "control", "leader", "queue_keep", "worker"}
"""Tables that may be read whole."""


@dataclass(frozen=True)
class Crowd:
    dsn: str
    early: Connection
    """It called every function, and so planned it, when there was not one job."""


@dataclass(frozen=True)
class Way:
    """How a call went: the indexes of jobs it used, the big tables it read whole, and how much it read."""

    indexes: set[str]
    read_whole: set[str]
    read: int
    blocks: int


@pytest.fixture(scope="module")
def crowd(server_dsn: str) -> Generator[Crowd]:
    with database(server_dsn) as dsn, connect(dsn) as loader, connect(dsn) as early:
        loader.execute("analyze")
        for _ in range(7):  # after five calls Postgres may keep a plan for good
            take_every_way(early)
        load(loader)
        yield Crowd(dsn, early)


@pytest.fixture(scope="module")
def known_crowd(server_dsn: str) -> Generator[str]:
    """A database of its own, because what analyze learns is not rolled back."""
    with database(server_dsn) as dsn, connect(dsn) as loader:
        load(loader)
        loader.execute("analyze")
        yield dsn


@contextmanager
def database(server_dsn: str) -> Generator[str]:
    """Where nothing is analysed by itself."""
    name = f"crowd{uuid4().hex[:12]}"
    dsn = make_conninfo(server_dsn, dbname=name)
    with connect(server_dsn) as server:
        create_database(server, name)
        with connect(dsn) as conn:
            for (table,) in conn.execute(
                "select c.relname from pg_class c where c.relnamespace = 'stepwell'::regnamespace and c.relkind = 'r'"
            ).fetchall():
                conn.execute(
                    sql.SQL("alter table {} set (autovacuum_enabled = off)").format(sql.Identifier("stepwell", table))
                )
        yield dsn
        drop_database(server, name)


def connect(dsn: str) -> Connection:
    return psycopg.connect(dsn, autocommit=True)


def load(conn: Connection) -> None:
    worker = calls.register_worker(conn)
    conn.execute("set synchronous_commit = off")
    conn.execute(
        """
        insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args, worker_id, epoch, attempt)
        select stepwell.uuid7(),
          -- A thousand or so of the scheduled ones are due.
          now() + (n.n - case when s.state = 'scheduled' then 2500 else 100000 end) * interval '1 second', now(),
          s.state::stepwell.state,
          case when mod(n.n, 10) = 0 then 'unknown' else 'work' end,
          case when mod(n.n, 3) = 0 then 'mail' else 'default' end,
          '{"order_id": 7}', case when s.state = 'running' then %s::uuid end,
          (s.state = 'running')::integer, (s.state = 'running')::integer
        from generate_series(1, 100000) as n (n)
        cross join lateral (
          select case when mod(n.n, 400) = 0 then 'running' when mod(n.n, 20) = 1 then 'waiting'
            when mod(n.n, 20) = 2 then 'blocked' when mod(n.n, 20) < 10 then 'scheduled' else 'ready' end as state
        ) s
        """,
        (worker,),
    )
    conn.execute(
        """
        insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, epoch, attempt, rank, state,
          task, queue, args)
        select stepwell.uuid7(), '2100-01-01', now(), now(), now(), 1, 1, 0, 'failed', 'work', 'default', '{}'
        from generate_series(1, 20000)
        """
    )
    conn.execute(
        """
        insert into stepwell.failure (job_id, expires_at, failed_at, epoch, attempt, reason, type, message)
        select h.id, h.expires_at, h.finished_at, 1, 1, 'error', 'ValueError', 'no such order' from stepwell.history h
        """
    )


def take_every_way(conn: Connection) -> dict[str, Way]:
    """Call each function on a few dozen jobs, if there are as many, and say how it went."""
    ways: dict[str, Way] = {}

    def call(name: str, function: Callable[..., Result], *args: Any, **options: Any) -> Result:
        before = counters(conn)
        result = function(conn, *args, **options)
        ways[name] = way(before, counters(conn))
        return result

    queues = ("default", "mail")
    worker = calls.register_worker(conn)
    held = call("claim", calls.claim, worker, 90, queues=queues)
    after = [max((job.place for job in held if job.queue == queue), default=FRONT) for queue in queues]
    call("claim after a position", calls.claim, worker, 20, queues=queues, positions=after)
    call("ready_queues", calls.ready_queues, "*")
    call("first_ready", calls.first_ready, worker, "default", "m*")
    held = held or [Held(str(uuid4()), "default", "work", 1, 1, 0, 0.0) for _ in range(90)]
    call("still_held", calls.still_held, held[0])
    call("report_progress", calls.report_progress, held[:40])
    call("finish", calls.finish, held[:10])
    call("fail", calls.fail, held[10:20], delay=5.0)
    call("fail for good", calls.fail, held[20:30], delay=None)
    call("snooze", calls.snooze, held[30:40])
    call("hold_misfits", hold_misfits, held[55:60])
    call("suspend", suspend, held[60:70])
    call("advance", advance, held[70:80])
    call("restart", restart, held[80:90])
    call("fork", fork, held[70])
    call("cancel", calls.cancel, [job.id for job in held[30:55]])
    call("renew", calls.renew, worker)
    call("results", results, [job.id for job in held[:60]])
    call("job_changes", job_changes, [job.id for job in held[:60]])
    call("retry", calls.retry, [job.id for job in held[:60]])
    call("run_now", run_now, [job.id for job in held[:60]])
    call("edit_args", edit_args, [job.id for job in held[:60]])
    call("find any jobs", find_jobs, JobMatch())
    call("find ready jobs of a task", find_jobs, JobMatch(("ready",), task="work"))
    call("find failed jobs", find_jobs, JobMatch(("failed",)))
    call("find succeeded jobs", find_jobs, JobMatch(("succeeded",)), look=1000)
    call("find running jobs", find_jobs, JobMatch(("running",)))
    call("find jobs that are not there", find_jobs, JobMatch(task="nobody", newer_than=3600.0), look=1000)
    conn.execute("update stepwell.job set attempt = 1 where id = any (%s::uuid[])", ([job.id for job in held],))
    call("find jobs by the error of their last attempt", find_jobs, JobMatch(error="nothing like it"), look=1000)
    call("promote", calls.promote, 50)
    call("unregister_worker", calls.unregister_worker, worker)
    call("rescue", calls.rescue)
    call("rescue_unregistered", rescue_unregistered)
    worker = calls.register_worker(conn)
    calls.claim(conn, worker, 20)
    call("hand_back_unknown", hand_back_unknown, worker)
    calls.claim(conn, worker, 20)
    conn.execute("update stepwell.worker set lease_until = 'epoch' where id = %s::uuid", (worker,))
    call("rescue from a dead worker", calls.rescue)
    return ways


def hold_misfits(conn: Connection, held: list[Held]) -> None:
    many = len(held)
    fetch(
        conn,
        queries.outcomes.hold_misfits(calls.ids(held), calls.epochs(held), [7] * many, ["no"] * many, [60.0] * many),
    )


def suspend(conn: Connection, held: list[Held]) -> None:
    wait = '{"steps": [{"key": "e", "n": 1, "kind": "sleep", "delay": 9, "pending": true}], "groups": [["e"]]}'
    fetch(conn, queries.outcomes.suspend(calls.ids(held), calls.epochs(held), [wait] * len(held)))


def advance(conn: Connection, held: list[Held]) -> None:
    fetch(conn, queries.outcomes.advance([Move(job.id, job.epoch, "first", "next", "1", 2, delay=9.0) for job in held]))


def restart(conn: Connection, held: list[Held]) -> None:
    fetch(conn, queries.outcomes.restart(calls.ids(held), calls.epochs(held), ["{}"] * len(held)))


def fork(conn: Connection, job: Held) -> None:
    fetch(conn, queries.jobs.fork(job.id, "next"))


def run_now(conn: Connection, ids: list[str]) -> None:
    fetch(conn, queries.jobs.run_now(ids))


def edit_args(conn: Connection, ids: list[str]) -> None:
    fetch(conn, queries.jobs.edit_args(ids, ["{}"] * len(ids)))


def find_jobs(conn: Connection, which: JobMatch, look: int = 50_000) -> None:
    query = queries.search.find_ids(which, None, 100)
    fetch(
        conn,
        msgspec.structs.replace(query, params=[look if value == MOST_LOOKED_AT else value for value in query.params]),
    )


def job_changes(conn: Connection, ids: list[str]) -> None:
    conn.execute("select id from stepwell.job_changes(%s::uuid[], %s::bigint[])", (ids, [None] * len(ids)))


def results(conn: Connection, ids: list[str]) -> None:
    conn.execute("select id from stepwell.results(%s::uuid[])", (ids,))


def rescue_unregistered(conn: Connection) -> None:
    conn.execute("select stepwell.rescue_unregistered()")


def hand_back_unknown(conn: Connection, worker: str) -> None:
    conn.execute("select stepwell.hand_back_unknown(%s::uuid, '{}', '{}')", (worker,))


def counters(conn: Connection) -> dict[str, tuple[str, int, int, int]]:
    """By table and index: the table, scans, rows or entries read, blocks read; in this transaction."""
    rows = conn.execute(
        """
        select c.relname, coalesce(i.indrelid::regclass::text, ''), pg_stat_get_xact_numscans(c.oid),
          pg_stat_get_xact_tuples_returned(c.oid), pg_stat_get_xact_blocks_fetched(c.oid)
        from pg_class c left join pg_index i on i.indexrelid = c.oid
        where c.relnamespace = 'stepwell'::regnamespace and c.relkind in ('r', 'i')
        """
    )
    return {row[0]: (row[1], row[2], row[3], row[4]) for row in rows}


def way(before: dict[str, tuple[str, int, int, int]], after: dict[str, tuple[str, int, int, int]]) -> Way:
    scanned = {name for name, counts in after.items() if counts[1] > before[name][1]}
    return Way(
        indexes={name for name in scanned if after[name][0] == "stepwell.job"},
        read_whole={name for name in scanned if not after[name][0]} - SMALL,
        read=sum(after[name][2] - before[name][2] for name in after if name not in SMALL),
        blocks=sum(after[name][3] - before[name][3] for name in after if name not in SMALL),
    )


@pytest.fixture(params=["planned when empty", "analysed when empty", "never analysed", "analysed now"])
def conn(request: pytest.FixtureRequest) -> Generator[Connection]:
    """A connection in a transaction that is rolled back, and what it knows of the crowd."""
    with ExitStack() as stack:
        if request.param == "planned when empty":
            conn = request.getfixturevalue("crowd").early
        elif request.param == "analysed now":
            conn = stack.enter_context(connect(request.getfixturevalue("known_crowd")))
        else:
            conn = stack.enter_context(connect(request.getfixturevalue("crowd").dsn))
        stack.enter_context(conn.transaction(force_rollback=True))
        if request.param == "never analysed":
            conn.execute(
                "update pg_class set reltuples = -1, relpages = 0 where relnamespace = 'stepwell'::regnamespace"
            )
        yield conn


def test_each_function_takes_its_index_and_reads_little(conn: Connection) -> None:
    ways = take_every_way(conn)
    assert {name: way.indexes for name, way in ways.items()} == WAYS
    assert {name: way.read_whole for name, way in ways.items() if way.read_whole} == {}
    assert {name: way.read for name, way in ways.items() if way.read > 5000} == {}
    assert {name: way.blocks for name, way in ways.items() if way.blocks > 3000} == {}


@pytest.mark.slow
def test_the_ready_queues_are_found_by_one_probe_each(conn: Connection) -> None:
    conn.execute(
        """
        insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args)
        select stepwell.uuid7(), now(), now(), 'ready', 'work', 'tenant.' || n.n, '{}'
        from generate_series(1, 500) as n (n)
        """
    )
    before = counters(conn)
    assert len(calls.ready_queues(conn, "*")) == 502
    after = counters(conn)
    # One more, which finds nothing.
    assert after["job_ready"][1] - before["job_ready"][1] == 503
    assert way(before, after).read < 1500
    assert not way(before, after).read_whole


def test_a_function_that_forbids_ways_forbids_to_compile_plans(crowd: Crowd) -> None:
    # Before Postgres 18 a plan with a forbidden part costs so much that it is compiled: 10 ms at each call.
    rows = crowd.early.execute(
        """
        select p.proname, 'jit=off' = any (p.proconfig) from pg_proc p
        where p.pronamespace = 'stepwell'::regnamespace
          and exists (select from unnest(p.proconfig) c where c like 'enable%')
        """
    )
    assert {name for name, off in rows if not off} == set()


def test_every_function_that_reads_jobs_is_in_a_group_of_settings(crowd: Crowd) -> None:
    # sql/settings.sql has the groups.
    rows = crowd.early.execute(
        r"""
        select p.proname, coalesce('{enable_seqscan=off,plan_cache_mode=force_generic_plan}' <@ p.proconfig, false)
        from pg_proc p
        where p.pronamespace = 'stepwell'::regnamespace and p.prosrc ~ '(from|join|update|using)\s+stepwell\.job\M'
        """
    ).fetchall()
    assert len(rows) > 40, "nothing was looked at"
    assert {name for name, grouped in rows if not grouped} == set()


@pytest.mark.slow
@pytest.mark.parametrize("index", ["job_ready", "job_due", "job_running", "job_cancelling", "job_pkey"])
def test_the_loss_of_an_index_would_be_noticed(crowd: Crowd, index: str) -> None:
    with connect(crowd.dsn) as conn, conn.transaction(force_rollback=True):
        if index == "job_pkey":
            conn.execute("alter table stepwell.job drop constraint job_pkey")
        else:
            conn.execute(sql.SQL("drop index {}").format(sql.Identifier("stepwell", index)))
        lost = {name for name, way in take_every_way(conn).items() if way.indexes != WAYS[name]}
    assert lost == {name for name, indexes in WAYS.items() if index in indexes}


def test_a_claim_after_its_position_does_not_walk_over_the_dead(crowd: Crowd) -> None:
    with connect(crowd.dsn) as conn, conn.transaction(force_rollback=True):
        worker = calls.register_worker(conn)
        done = calls.claim(conn, worker, 3000)
        calls.finish(conn, done)
        before = counters(conn)
        assert len(calls.claim(conn, worker, 50, positions=[done[-1].place])) == 50
        assert way(before, counters(conn)).read < 100
        before = counters(conn)
        assert len(calls.claim(conn, worker, 50)) == 50
        assert way(before, counters(conn)).read > 3000, "nothing was dead, so nothing was shown"
