"""Many at once on the same jobs: rows are locked in the order of their ids, so nobody deadlocks."""

from __future__ import annotations

import random
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import product

import psycopg
import pytest

from tests.waiting import until

from . import calls
from .calls import Connection, Held

ROUNDS = 60


@pytest.fixture
def held(conn: Connection) -> list[Held]:
    """Running jobs of one worker, their rows in no order at all, in a table so small that any plan is a good one."""
    conn.execute("vacuum full stepwell.job")
    worker = calls.register_worker(conn)
    calls.enqueue_many(conn, ["{}"] * 40)
    held = calls.claim(conn, worker)
    random.shuffle(held)
    for job in held:
        conn.execute("update stepwell.job set task = task || '' where id = %s::uuid", (job.id,))
    conn.execute("analyze stepwell.job")
    return held


def finish(conn: Connection, held: list[Held]) -> object:
    return calls.finish(conn, held)


def fail(conn: Connection, held: list[Held]) -> object:
    return calls.fail(conn, held, delay=5.0)


def fail_for_good(conn: Connection, held: list[Held]) -> object:
    return calls.fail(conn, held, delay=None)


def snooze(conn: Connection, held: list[Held]) -> object:
    return calls.snooze(conn, held)


def report_progress(conn: Connection, held: list[Held]) -> object:
    return calls.report_progress(conn, held)


def cancel(conn: Connection, held: list[Held]) -> object:
    return calls.cancel(conn, [job.id for job in held])


def test_overlapping_sets_in_opposite_order_do_not_deadlock(conn: Connection, dsn: str, held: list[Held]) -> None:
    upwards = sorted(held, key=lambda job: job.id)
    everything = [finish, fail, fail_for_good, snooze, report_progress, cancel]
    with psycopg.connect(dsn) as first, psycopg.connect(dsn) as second, ThreadPoolExecutor(2) as threads:
        for session in (first, second):
            session.execute("set deadlock_timeout = '10ms'")
            session.commit()
        for end, other in product(everything, [finish, report_progress, cancel]):
            # Both queue up behind the same row. Whoever locks in another order then holds what the other wants.
            with conn.transaction():
                conn.execute("select from stepwell.job where id = %s::uuid for update", (upwards[20].id,))
                one = threads.submit(end, first, upwards)
                two = threads.submit(other, second, upwards[::-1])
                until(lambda: calls.blocked(conn, first) and calls.blocked(conn, second))
            wait([one, two], return_when=FIRST_COMPLETED)
            (first if one.done() else second).rollback()
            one.result()
            two.result()
            first.rollback()
            second.rollback()


def test_a_rescue_of_several_workers_and_a_cancel_of_their_jobs_do_not_deadlock(conn: Connection, dsn: str) -> None:
    calls.set_clock(conn, 1_800_000_000.0)
    workers = sorted(calls.register_worker(conn, lease=30.0) for _ in range(2))
    calls.enqueue_many(conn, ["{}", "{}"])
    # The worker that is looked at first holds the job that is locked last.
    (low,) = calls.claim(conn, workers[1], 1)
    (high,) = calls.claim(conn, workers[0], 1)
    calls.set_clock(conn, 1_800_000_030.0)
    with (
        psycopg.connect(dsn) as renewer,
        psycopg.connect(dsn, autocommit=True) as rescuer,
        psycopg.connect(dsn, autocommit=True) as canceller,
        ThreadPoolExecutor(2) as threads,
    ):
        for session in (rescuer, canceller):
            session.execute("set deadlock_timeout = '10ms'")
        calls.renew(renewer, workers[1])
        rescued = threads.submit(calls.rescue, rescuer)
        until(lambda: calls.blocked(conn, rescuer))
        cancelled = threads.submit(calls.cancel, canceller, [low.id, high.id])
        until(lambda: cancelled.done() or calls.blocked(conn, canceller))
        renewer.rollback()
        assert set(rescued.result()) == {low.id, high.id}
        assert set(cancelled.result()) == {low.id, high.id}


@pytest.mark.slow
def test_many_sessions_on_the_same_jobs_never_deadlock(conn: Connection, dsn: str) -> None:
    worker = calls.register_worker(conn)
    ids = calls.enqueue_many(conn, ["{}"] * 30)

    def live(seed: int) -> None:
        chance = random.Random(seed)
        with psycopg.connect(dsn, autocommit=True) as own:
            own.execute("set synchronous_commit = off")
            own.execute("set deadlock_timeout = '10ms'")
            for _ in range(ROUNDS):
                held = calls.claim(own, worker, 20)
                chance.shuffle(held)
                some = chance.sample(ids, 15)
                calls.report_progress(own, held)
                calls.cancel(own, chance.sample(ids, 5))
                chance.choice([finish, fail, fail_for_good, snooze])(own, held)
                calls.retry(own, some)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(live, seed) for seed in range(4)]:
            done.result()
    assert calls.one(conn.execute("select count(distinct id) from stepwell.jobs")) == 30


def test_a_child_that_is_cancelled_while_it_is_given_back_holds_nothing_while_it_waits_for_its_parent(
    conn: Connection, dsn: str
) -> None:
    worker = calls.register_worker(conn)
    calls.enqueue_many(conn, ["{}", "{}"])
    parent, child = calls.claim(conn, worker)
    conn.execute("update stepwell.job set parent_id = %s, parent_key = 'c' where id = %s", (parent.id, child.id))
    with (
        psycopg.connect(dsn) as canceller,
        psycopg.connect(dsn, autocommit=True) as giver,
        psycopg.connect(dsn) as ender,
        ThreadPoolExecutor(2) as threads,
    ):
        ender.execute("set deadlock_timeout = '10ms'")
        giver.execute("set deadlock_timeout = '1min'")
        canceller.execute("select stepwell.cancel(array[%s::uuid])", (parent.id,))
        # Both wait for who cancels: one to give the child back, and one to end its parent, and then the child.
        given = threads.submit(calls.snooze, giver, [child])
        ended = threads.submit(ender.execute, "select from stepwell.job where id = %s for update", (parent.id,))
        until(lambda: calls.blocked(conn, giver) and calls.blocked(conn, ender))
        canceller.commit()
        ended.result()
        ender.execute("select from stepwell.job where id = %s for update", (child.id,))
        ender.rollback()
        assert given.result() == []
    assert calls.state(conn, child.id) == "cancelled"
