"""Retention: where finished jobs are kept, for how long, and how they go."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.waiting import until

from . import calls
from .calls import DAY, Connection

NOON = "2030-01-01 12:00:00+00"


@pytest.fixture
def worker(conn: Connection) -> str:
    calls.set_clock(conn, NOON)
    return calls.register_worker(conn, lease=inf_seconds())


def inf_seconds() -> float:
    """A lease for longer than any of these tests moves the clock."""
    return 100 * 365 * DAY


def fail_one(conn: Connection, worker: str, keep: float) -> str:
    """A job that fails for good, so that it has a row in history and one in failure."""
    job_id = calls.enqueue(conn)
    calls.fail(conn, calls.claim(conn, worker), delay=None, keep=keep)
    return job_id


def places(conn: Connection, job_id: str) -> list[str]:
    """The partitions in which a job and its failures are."""
    rows = conn.execute(
        "select h.tableoid::regclass::text from stepwell.history h where h.id = %s::uuid"
        " union all select f.tableoid::regclass::text from stepwell.failure f where f.job_id = %s::uuid",
        (job_id, job_id),
    )
    return [row[0].removeprefix("stepwell.") for row in rows]


def partitions(conn: Connection) -> set[str]:
    rows = conn.execute(
        "select i.inhrelid::regclass::text from pg_inherits i"
        " where i.inhparent in ('stepwell.history'::regclass, 'stepwell.failure'::regclass)"
    )
    return {row[0].removeprefix("stepwell.") for row in rows}


def test_partitions_are_made_for_today_and_two_days_ahead(conn: Connection, worker: str) -> None:
    made = calls.make_partitions(conn, DAY, 7 * DAY)
    assert set(made) == {
        f"{parent}_203001{day}" for parent in ("history", "failure") for day in ("02", "03", "04", "08", "09", "10")
    }
    assert calls.make_partitions(conn, DAY, 7 * DAY) == []
    calls.set_clock(conn, "2030-01-02 00:00:00+00")
    assert set(calls.make_partitions(conn, DAY)) == {"history_20300105", "failure_20300105"}


def test_what_is_kept_for_no_time_or_for_ever_needs_no_partition(conn: Connection, worker: str) -> None:
    assert calls.make_partitions(conn, 0.0, inf) == []
    assert calls.make_partitions(conn) == []


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/St_Johns"])
def test_a_day_is_a_day_in_utc_wherever_the_session_is(conn: Connection, worker: str, zone: str) -> None:
    calls.make_partitions(conn, DAY)
    conn.execute("select set_config('timezone', %s, false)", (zone,))
    assert calls.make_partitions(conn, DAY, 4 * DAY) == [
        f"{parent}_203001{day}" for parent in ("history", "failure") for day in ("05", "06", "07")
    ]
    calls.set_clock(conn, "2030-01-01 23:59:59.999999+00")
    assert places(conn, fail_one(conn, worker, DAY)) == ["history_20300102", "failure_20300102"]
    calls.set_clock(conn, "2030-01-02 00:00:00+00")
    assert places(conn, fail_one(conn, worker, DAY)) == ["history_20300103", "failure_20300103"]
    calls.set_clock(conn, "2030-01-02 23:59:59+00")
    assert calls.prune(conn) == []
    calls.set_clock(conn, "2030-01-03 00:00:00+00")
    assert calls.prune(conn) == ["failure_20300102", "history_20300102"]


def test_an_end_never_fails_for_want_of_a_partition_and_its_row_is_moved_later(conn: Connection, worker: str) -> None:
    job_id = fail_one(conn, worker, DAY)
    other = fail_one(conn, worker, 20 * DAY)
    assert places(conn, job_id) == places(conn, other) == ["history_default", "failure_default"]
    calls.make_partitions(conn, DAY)
    assert places(conn, job_id) == ["history_20300102", "failure_20300102"]
    assert places(conn, other) == ["history_default", "failure_default"]
    assert calls.state(conn, job_id) == "failed"


def test_retention_moves_with_the_clock(conn: Connection, worker: str) -> None:
    calls.make_partitions(conn, DAY)
    assert places(conn, fail_one(conn, worker, DAY)) == ["history_20300102", "failure_20300102"]
    calls.set_clock(conn, "2030-01-03 12:00:00+00")
    assert places(conn, fail_one(conn, worker, DAY)) == ["history_20300104", "failure_20300104"]
    calls.set_clock(conn, "2090-01-01 12:00:00+00")
    assert places(conn, fail_one(conn, worker, DAY)) == ["history_default", "failure_default"]


def test_a_day_that_is_over_is_dropped_whole(conn: Connection, worker: str) -> None:
    calls.make_partitions(conn, DAY)
    job_id = fail_one(conn, worker, DAY)
    calls.set_clock(conn, "2030-01-02 23:59:59.999999+00")
    assert calls.prune(conn) == []
    assert places(conn, job_id) == ["history_20300102", "failure_20300102"]
    calls.set_clock(conn, "2030-01-03 00:00:00+00")
    assert calls.prune(conn) == ["failure_20300102", "history_20300102"]
    assert calls.state(conn, job_id) is None
    assert {"history_20300102", "failure_20300102"}.isdisjoint(partitions(conn))
    assert calls.prune(conn) == []


def test_what_expired_in_the_default_partition_is_deleted(conn: Connection, worker: str) -> None:
    short, long = fail_one(conn, worker, 60.0), fail_one(conn, worker, 7200.0)
    calls.set_clock(conn, "2030-01-01 12:01:00+00")
    calls.prune(conn)
    assert places(conn, short) == []
    assert places(conn, long) == ["history_default", "failure_default"]


def test_what_is_kept_for_no_time_leaves_no_row(conn: Connection, worker: str) -> None:
    assert places(conn, fail_one(conn, worker, 0.0)) == []
    calls.enqueue(conn)
    calls.finish(conn, calls.claim(conn, worker), keep=0.0)
    assert calls.one(conn.execute("select count(*) from stepwell.jobs")) == 0


def test_what_is_kept_for_ever_stays(conn: Connection, worker: str) -> None:
    job_id = fail_one(conn, worker, inf)
    assert places(conn, job_id) == ["history_forever", "failure_forever"]
    century = fail_one(conn, worker, 200 * 365 * DAY)
    assert places(conn, century) == ["history_forever", "failure_forever"], "longer than a century is for ever"
    calls.set_clock(conn, "2129-01-01 00:00:00+00")
    calls.prune(conn)
    assert places(conn, job_id) == ["history_forever", "failure_forever"]


def test_a_failure_expires_with_the_job_that_it_ended_although_time_goes_on(conn: Connection, worker: str) -> None:
    conn.execute("delete from stepwell.clock")
    job_id = fail_one(conn, worker, DAY)
    row = conn.execute(
        "select h.expires_at = f.expires_at from stepwell.history h join stepwell.failure f on f.job_id = h.id"
        " where h.id = %s::uuid",
        (job_id,),
    ).fetchone()
    assert row == (True,)


@pytest.mark.parametrize("table", ["history_20300102", "history"])
def test_a_partition_somebody_reads_is_left_for_the_next_round(
    conn: Connection, dsn: str, worker: str, table: str
) -> None:
    calls.make_partitions(conn, DAY)
    job_id = fail_one(conn, worker, DAY)
    calls.set_clock(conn, "2030-01-03 00:00:00+00")
    with psycopg.connect(dsn) as reader:
        reader.execute(sql.SQL("select from {}").format(sql.Identifier("stepwell", table)))
        assert calls.prune(conn) == ["failure_20300102"]
        assert places(conn, job_id) == ["history_20300102"]
    assert calls.prune(conn) == ["history_20300102"]


def test_only_one_prunes_at_a_time_and_nobody_waits(conn: Connection, dsn: str, worker: str) -> None:
    calls.make_partitions(conn, DAY)
    calls.set_clock(conn, "2030-01-03 00:00:00+00")
    with psycopg.connect(dsn) as other:
        other.execute("select stepwell.lock_partitions()")
        assert calls.prune(conn) == []


def test_nobody_who_may_only_connect_keeps_partitions_from_being_made_and_dropped(
    conn: Connection, dsn: str, worker: str
) -> None:
    with psycopg.connect(dsn) as anybody:
        anybody.execute("select pg_advisory_lock(1937007982, 0)")
        assert len(calls.make_partitions(conn, DAY)) == 6
        calls.set_clock(conn, "2030-01-03 00:00:00+00")
        assert calls.prune(conn) == ["failure_20300102", "history_20300102"]


def test_who_makes_partitions_gives_up_soon_and_says_who_else_does_so(conn: Connection, dsn: str, worker: str) -> None:
    calls.make_partitions(conn, DAY)
    calls.enqueue(conn)
    with psycopg.connect(dsn, application_name="slow") as other, psycopg.connect(dsn, autocommit=True) as finisher:
        other.execute("select stepwell.lock_partitions()")
        # Where there is nothing to make it is not asked for.
        assert calls.make_partitions(conn, DAY) == []
        with ThreadPoolExecutor(1) as threads:
            making = threads.submit(calls.make_partitions, conn, 40 * DAY)
            until(lambda: calls.blocked(finisher, conn) or making.done())
            # Nobody who ends a job waits for those who wait for it.
            assert calls.finish(finisher, calls.claim(finisher, worker)) == []
            with pytest.raises(
                psycopg.errors.LockNotAvailable,
                match=rf"dropping partitions.* process {other.info.backend_pid} \(role .*, application slow\)",
            ):
                making.result(timeout=20)
    assert len(calls.make_partitions(conn, 40 * DAY)) == 6


def test_while_a_transaction_is_in_the_way_no_partition_is_made_and_nobody_is_refused(
    conn: Connection, dsn: str, worker: str
) -> None:
    calls.make_partitions(conn, DAY)
    calls.enqueue(conn)
    held = calls.claim(conn, worker)
    with psycopg.connect(dsn) as finisher:
        calls.finish(finisher, held)
        assert calls.make_partitions(conn, 4 * DAY) == []
        job = calls.enqueue(conn)
        conn.execute("select stepwell.cancel(array[%s]::uuid[], _keep => %s)", (job, 4.0 * DAY))
        assert places(conn, job) == ["history_default"]
        finisher.commit()
    assert len(calls.make_partitions(conn, 4 * DAY)) == 6
    assert places(conn, job) == ["history_20300105"]


def test_a_partition_is_not_made_where_its_newest_rows_are_not_seen(conn: Connection, dsn: str) -> None:
    with psycopg.connect(dsn) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.errors.FeatureNotSupported, match=r"a new partition needs .* at read committed"):
            calls.make_partitions(other, 4 * DAY)


def test_ends_that_find_no_partition_and_the_making_of_one_do_not_deadlock(
    conn: Connection, dsn: str, worker: str
) -> None:
    calls.enqueue_many(conn, ["{}", "{}"])
    one, two = calls.claim(conn, worker)
    with (
        psycopg.connect(dsn) as ender,
        psycopg.connect(dsn, autocommit=True) as maker,
        ThreadPoolExecutor(1) as threads,
    ):
        # It has a row in history and wants one in failure. Alone, stepwell.fail takes them the other way round, as does
        # who makes partitions: that one gives up sooner than Postgres looks for a deadlock.
        calls.finish(ender, [one], keep=100 * DAY)
        made = threads.submit(calls.make_partitions, maker, 100 * DAY)
        until(lambda: calls.blocked(conn, maker))
        calls.fail(ender, [two], delay=1.0, keep=100 * DAY)
        ender.commit()
        assert len(made.result() + calls.make_partitions(conn, 100 * DAY)) == 6
    assert places(conn, one.id) == ["history_20300411"]


@pytest.mark.parametrize("days", [100, 98])
@pytest.mark.parametrize("end", ["finish", "fail", "cancel"])
def test_who_waits_for_a_partition_to_be_made_writes_into_it(
    conn: Connection, dsn: str, worker: str, end: str, days: int
) -> None:
    calls.enqueue(conn)
    [job] = calls.claim(conn, worker)
    waiting = calls.enqueue(conn)
    with (
        psycopg.connect(dsn) as maker,
        psycopg.connect(dsn, autocommit=True) as ender,
        ThreadPoolExecutor(1) as threads,
    ):
        # For today, and for two days from now.
        assert len(calls.make_partitions(maker, days * DAY)) == 6
        if end == "finish":
            ended = threads.submit(calls.finish, ender, [job], keep=100 * DAY)
        elif end == "fail":
            ended = threads.submit(calls.fail, ender, [job], delay=None, keep=100 * DAY)
        else:
            ended = threads.submit(
                ender.execute, "select stepwell.cancel(array[%s::uuid], null, %s)", (waiting, 100 * DAY)
            )
        until(lambda: calls.blocked(conn, ender))
        maker.commit()
        ended.result()
    assert calls.one(conn.execute("select count(*) from stepwell.history_20300411")) == 1
    assert calls.one(conn.execute("select count(*) from stepwell.history_default")) == 0


def test_a_new_partition_has_the_indexes_of_the_others(conn: Connection, worker: str) -> None:
    calls.make_partitions(conn, DAY)
    rows = conn.execute(
        """
        select c.relname, array_agg(pg_get_indexdef(i.inhparent) order by i.inhparent::regclass::text)
        from pg_inherits i join pg_index x on x.indexrelid = i.inhrelid join pg_class c on c.oid = x.indrelid
        where c.relname in ('history_default', 'history_20300102', 'failure_default', 'failure_20300102')
        group by c.relname
        """
    )
    indexes = dict(rows.fetchall())
    assert indexes["history_20300102"] == indexes["history_default"]
    assert indexes["failure_20300102"] == indexes["failure_default"]
    assert len(indexes["history_20300102"]) >= 2


def test_a_job_is_retried_from_any_partition(conn: Connection, worker: str) -> None:
    calls.make_partitions(conn, DAY)
    jobs = [fail_one(conn, worker, keep) for keep in (DAY, 20 * DAY, inf)]
    assert [places(conn, job_id)[0] for job_id in jobs] == ["history_20300102", "history_default", "history_forever"]
    assert sorted(calls.retry(conn, jobs)) == sorted(jobs)
    assert [calls.state(conn, job_id) for job_id in jobs] == ["ready"] * 3


def test_what_has_expired_is_known_no_more_before_it_is_pruned(conn: Connection, worker: str) -> None:
    calls.make_partitions(conn, 600.0)
    job_id = calls.enqueue(conn)
    [job] = calls.claim(conn, worker)
    conn.execute(
        "select stepwell.save_steps(%s, %s, '{large}', '{1}', '{step}', '{1}', _large => '{true}')", ([job.id], [1])
    )
    calls.fail(conn, [job], delay=None, keep=600.0)

    def known() -> list[Any]:
        counts = conn.execute(
            "select (select count(*) from stepwell.jobs), (select count(*) from stepwell.failures),"
            " (select count(*) from stepwell.steps), stepwell.large_value(%s::uuid, 'large') is not null,"
            " (select state is not null from stepwell.results(array[%s::uuid]))",
            (job_id, job_id),
        ).fetchone()
        return list(counts or ())

    calls.set_clock(conn, "2030-01-01 12:09:59+00")
    assert known() == [1, 1, 1, True, True]
    calls.set_clock(conn, "2030-01-01 12:10:00+00")
    assert known() == [0, 0, 0, False, False]
    assert places(conn, job_id)
    assert calls.retry(conn, [job_id]) == []
    assert calls.one(conn.execute("select stepwell.fork(%s::uuid, 'large')", (job_id,))) is None


def test_the_newest_jobs_are_found_by_an_index_though_the_expired_ones_are_left_out(
    conn: Connection, worker: str
) -> None:
    calls.make_partitions(conn, DAY)
    conn.execute("set enable_seqscan = off")
    explained = conn.execute(
        "explain (costs off) select id from stepwell.jobs where queue = 'default' order by id desc limit 10"
    )
    plan = [row[0] for row in explained]
    assert any("Merge Append" in line for line in plan)
    assert not any("Sort" in line and "Key" not in line for line in plan), plan
