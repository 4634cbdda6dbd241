"""Unique keys under producers that race: one job per key, no deadlock, and nobody waits longer than he must."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from stepwell import App, DatabaseTimeout, JobHandle, Unique, Worker
from tests.waiting import auntil, until

Connection = psycopg.Connection[Any]

_WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


def live(conn: Connection) -> int:
    return conn.execute("select count(*) from stepwell.job").fetchall()[0][0]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_fifty_producers_that_commit_and_roll_back_at_random_leave_one_job(
    app: App, dsn: str, conn: Connection, seed: int
) -> None:
    dice = random.Random(seed)

    @app.task(unique="{user}")
    async def sync(user: str) -> None: ...

    async def produce(number: int, commits: bool, pause: float) -> JobHandle[None] | None:
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            await ready.wait()
            await asyncio.sleep(pause)
            job = await sync.using(connection=connection).aenqueue("ada")
            await asyncio.sleep(pause)
            await (connection.commit() if commits else connection.rollback())
            return job if commits else None

    ready = asyncio.Event()
    # One that commits is enough to leave a job.
    wishes = [True, *(dice.random() < 0.3 for _ in range(49))]
    dice.shuffle(wishes)
    producers = [asyncio.create_task(produce(n, wish, dice.random() / 100)) for n, wish in enumerate(wishes)]
    await asyncio.sleep(0)
    ready.set()
    jobs = [job for job in await asyncio.gather(*producers) if job is not None]
    assert live(conn) == 1
    assert len({job.id for job in jobs}) == 1
    assert sum(job.inserted for job in jobs) == 1
    assert conn.execute("select job_id from stepwell.unique_key").fetchall() == [(jobs[0].id,)]


async def test_fifty_producers_of_a_key_whose_period_is_over_leave_one_job(
    app: App, dsn: str, conn: Connection
) -> None:
    @app.task(unique=Unique("{user}", period="1h"))
    async def sync(user: str) -> None: ...

    old = await sync.aenqueue("ada")
    async with Worker(app):
        await old.aresult(timeout="20s")
    conn.execute("insert into stepwell.clock select clock_timestamp() + interval '2 hours'")

    async def produce(commits: bool) -> JobHandle[None] | None:
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            job = await sync.using(connection=connection).aenqueue("ada")
            await (connection.commit() if commits else connection.rollback())
            return job if commits else None

    jobs = [job for job in await asyncio.gather(*(produce(n % 3 == 2) for n in range(50))) if job is not None]
    assert live(conn) == 1
    assert len({job.id for job in jobs}) == 1
    assert jobs[0].id != old.id


@pytest.mark.parametrize("commits", [True, False])
async def test_a_producer_waits_for_the_transaction_of_another_and_no_longer(
    app: App, dsn: str, conn: Connection, commits: bool
) -> None:
    @app.task(unique="{user}")
    async def sync(user: str) -> None: ...

    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        first = await sync.using(connection=connection).aenqueue("ada")
        other = asyncio.create_task(sync.aenqueue("ada"))
        await auntil(lambda: conn.execute(_WAITING).fetchone() == (1,))
        # Another key does not wait.
        assert (await sync.using(connection=None).aenqueue_many([{"user": "bob"}]))[0].inserted
        await (connection.commit() if commits else connection.rollback())
        job = await other
    assert job.inserted is not commits
    assert (job.id == first.id) is commits
    assert live(conn) == 2


async def test_only_who_needs_a_key_waits_for_the_open_transaction_that_has_it(app: App, dsn: str) -> None:
    @app.task(unique="{user}")
    async def sync(user: str) -> None: ...

    @app.task
    async def plain(n: int) -> None: ...

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(16) as threads:
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            taken = await sync.using(connection=connection).aenqueue("ada")
            waiting = [asyncio.ensure_future(sync.aenqueue("ada")) for _ in range(15)]
            waiting += [loop.run_in_executor(threads, sync.enqueue, "ada") for _ in range(15)]
            await asyncio.sleep(0)
            others = [*(plain.aenqueue(n) for n in range(5)), sync.aenqueue("bob"), sync.aenqueue("eve")]
            assert all(job.inserted for job in await asyncio.gather(*others))
            assert (await loop.run_in_executor(threads, plain.enqueue, 6)).inserted
            assert not any(each.done() for each in waiting)
            await connection.commit()
            assert [(job.id, job.inserted) for job in await asyncio.gather(*waiting)] == [(taken.id, False)] * 30
    assert await app.acount_jobs() == 9


async def test_who_waits_for_a_key_for_too_long_is_told_so(dsn: str, conn: Connection) -> None:
    app = App(dsn, call_timeout="1s")

    @app.task(unique="{user}")
    async def sync(user: str) -> None: ...

    async with app, await psycopg.AsyncConnection.connect(dsn) as connection:
        await sync.using(connection=connection).aenqueue("ada")
        for waiting in (sync.aenqueue("ada"), asyncio.to_thread(sync.enqueue, "ada")):
            with pytest.raises(DatabaseTimeout, match=r"waiting for its unique key for 1s .* Nothing was enqueued"):
                await waiting
        await connection.rollback()
    assert live(conn) == 0


async def test_nobody_waits_for_a_transaction_that_found_the_key_taken(app: App, dsn: str, conn: Connection) -> None:
    @app.task(unique="{user}")
    async def sync(user: str) -> None: ...

    job = await sync.aenqueue("ada")
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        assert not (await sync.using(connection=connection).aenqueue("ada")).inserted
        async with Worker(app):
            await job.aresult(timeout="10s")
        next_job = await sync.aenqueue("ada")
        assert next_job.inserted
        # This transaction sees it, too.
        assert (await sync.using(connection=connection).aenqueue("ada")).id == next_job.id


async def test_a_job_ends_while_the_key_of_its_throttle_is_taken_over_by_an_open_transaction(
    app: App, dsn: str, conn: Connection
) -> None:
    @app.task(unique=Unique("{user}", period="1h", on_conflict="throttle"))
    async def sync(user: str) -> None: ...

    old = await sync.aenqueue("ada")
    conn.execute("insert into stepwell.clock select clock_timestamp() + interval '2 hours'")
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        new = await sync.using(connection=connection).aenqueue("ada")
        assert new.inserted
        async with Worker(app):
            await old.aresult(timeout="10s")
        await connection.commit()
    assert not (await sync.aenqueue("ada")).inserted


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, 5000])
def test_batches_with_the_same_keys_in_opposite_order_do_not_deadlock(dsn: str, conn: Connection, count: int) -> None:
    # A batch that waits for another notices a deadlock at once.
    conn.execute("alter database " + conn.info.dbname + " set deadlock_timeout = '10ms'")  # type: ignore[arg-type]
    with App(dsn) as app:

        @app.task(unique="{n}")
        def work(n: int) -> None: ...

        dice = random.Random(count)
        start = threading.Barrier(3)

        def produce(number: int) -> list[JobHandle[None]]:
            numbers = list(range(count))
            if number == 1:
                numbers.reverse()
            elif number == 2:
                dice.shuffle(numbers)
            with psycopg.connect(dsn) as connection:
                start.wait(60)
                return work.using(connection=connection).enqueue_many([{"n": n} for n in numbers])

        with ThreadPoolExecutor(3) as pool:
            for _ in range(10 if count == 100 else 3):
                made = list(pool.map(produce, range(3)))
                assert sum(job.inserted for jobs in made for job in jobs) == count
                assert len({job.id for jobs in made for job in jobs}) == count
                assert live(conn) == count
                conn.execute("select stepwell.cancel(array(select id from stepwell.job))")
                assert conn.execute("select count(*) from stepwell.unique_key").fetchone() == (0,)


def test_long_lists_with_the_same_keys_in_opposite_order_do_not_deadlock(dsn: str, conn: Connection) -> None:
    count = 5000
    start = threading.Barrier(2)

    def produce(number: int) -> list[bool]:
        with App(dsn) as app:

            @app.task(name="work", unique="{n}")
            def work(n: int) -> None: ...

            work.enqueue(-1)  # so that a connection is open
            start.wait(60)
            numbers = range(count) if number else range(count - 1, -1, -1)
            return [job.inserted for job in work.enqueue_many([{"n": n} for n in numbers])]

    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            made = list(pool.map(produce, range(2)))
            assert [len(inserted) for inserted in made] == [count, count]
            assert sum(map(sum, made)) == count
            assert live(conn) == count + 1
            conn.execute("select stepwell.cancel(array(select id from stepwell.job))")


async def test_a_long_list_waits_for_a_key_of_an_open_transaction(app: App, dsn: str, conn: Connection) -> None:
    @app.task(unique="{n}")
    async def work(n: int) -> None: ...

    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        first = await work.using(connection=connection).aenqueue(4000)
        other = asyncio.create_task(work.aenqueue_many([{"n": n % 4900} for n in range(5000)]))
        # It waits for a moment in the midst of its batches, and then in order, as long as it takes.
        in_order = _WAITING + " and clock_timestamp() - query_start > interval '300 milliseconds'"
        await auntil(lambda: conn.execute(in_order).fetchone() == (1,))
        await connection.commit()
        jobs = await other
    assert [n for n, job in enumerate(jobs) if not job.inserted] == [4000, *range(4900, 5000)]
    assert jobs[4000].id == first.id
    assert jobs[4950].id == jobs[50].id
    assert live(conn) == 4900


def test_opposite_batches_of_new_and_expired_keys_do_not_deadlock(dsn: str, conn: Connection) -> None:
    conn.execute("alter database " + conn.info.dbname + " set deadlock_timeout = '10ms'")  # type: ignore[arg-type]
    with App(dsn) as app:

        @app.task(unique=Unique("{n}", period="1h"))
        def work(n: int) -> None: ...

        start = threading.Barrier(2)

        def produce(turn: tuple[int, int]) -> int:
            number, until_n = turn
            numbers = list(range(until_n))
            random.Random(until_n * 2 + number).shuffle(numbers)
            with psycopg.connect(dsn) as connection:
                start.wait(60)
                return sum(
                    j.inserted for j in work.using(connection=connection).enqueue_many([{"n": n} for n in numbers])
                )

        conn.execute("insert into stepwell.clock select clock_timestamp()")
        with ThreadPoolExecutor(2) as pool:
            for turn in range(1, 11):
                # Half of the keys are there, and their period is over.
                assert sum(pool.map(produce, [(0, turn * 40), (1, turn * 40)])) == turn * 40
                conn.execute("update stepwell.unique_key set live = false")
                conn.execute("delete from stepwell.job")
                conn.execute("update stepwell.clock set at = at + interval '2 hours'")


async def test_producers_that_race_with_workers_never_make_two_jobs_of_one_key(app: App, conn: Connection) -> None:
    running: Counter[int] = Counter()
    most = ran = 0

    @app.task(unique="{n}")
    async def work(n: int) -> None:
        nonlocal most, ran
        running[n] += 1
        ran += 1
        most = max(most, running[n])
        await asyncio.sleep(0)
        running[n] -= 1

    async def produce(number: int) -> None:
        dice = random.Random(number)
        for _ in range(60):
            if dice.random() < 0.3:
                await work.aenqueue_many([{"n": dice.randrange(10)} for _ in range(5)])
            else:
                await work.aenqueue(dice.randrange(10))

    async with Worker(app, concurrency=20):
        await asyncio.gather(*(produce(n) for n in range(10)))
        await auntil(lambda: live(conn) == 0)
    assert most == 1
    assert ran > 10
    assert conn.execute("select count(*) from stepwell.unique_key").fetchone() == (0,)


async def test_replaces_that_race_with_claims_and_cancels_lose_no_job(app: App, conn: Connection) -> None:
    seen: Counter[int] = Counter()

    @app.task(unique=Unique("{n}", on_conflict="replace"))
    async def work(n: int, text: int) -> None:
        seen[n] = max(seen[n], text)

    async def produce(n: int) -> None:
        for text in range(40):
            job = await work.using(delay="1ms" if text % 3 else "0s").aenqueue(n, text)
            if text % 7 == 0:
                await job.acancel()
        # The last is on its own: the job before it may have started with older args.
        while not (await work.aenqueue(n, 1000)).inserted:
            pass

    async with Worker(app, concurrency=10):
        await asyncio.gather(*(produce(n) for n in range(8)))
        await auntil(lambda: live(conn) == 0)
    assert dict(seen) == dict.fromkeys(range(8), 1000)
    assert conn.execute("select count(*) from stepwell.unique_key").fetchone() == (0,)


def test_a_transaction_with_an_older_snapshot_is_told_to_try_again(dsn: str, conn: Connection) -> None:
    enqueue = "select stepwell.enqueue('work', unique_key => 'k')"
    with psycopg.connect(dsn) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select 1 from stepwell.job")
        conn.execute(enqueue)
        with pytest.raises(psycopg.errors.SerializationFailure):
            other.execute(enqueue)


def test_a_wait_for_a_key_ends_with_the_killed_session(dsn: str, conn: Connection) -> None:
    enqueue = "select stepwell.enqueue('work', unique_key => 'k')"
    with closing(psycopg.connect(dsn)) as holder, ThreadPoolExecutor(1) as pool:
        holder.execute(enqueue)
        with psycopg.connect(dsn, autocommit=True) as waiter:
            waiting = pool.submit(waiter.execute, enqueue)
            until(lambda: conn.execute(_WAITING).fetchone() == (1,))
            conn.execute("select pg_terminate_backend(%s)", (holder.info.backend_pid,))
            assert waiting.result(60).fetchone()
    assert live(conn) == 1
