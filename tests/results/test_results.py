"""Waiting for results: one listener for all who wait, woken by NOTIFY, and a clear error for every other end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from waiting import auntil, until

from stepwell import App, ConfigError, JobNotFound, Retry, Worker


def finish(conn: psycopg.Connection[Any], job_id: Any, result: str) -> None:
    """Do what a worker would, at a moment of the test's choosing."""
    conn.execute(
        "with w as (select stepwell.register_worker('h', 1, 'v', '{default}', '{}', 1, 60) as id) "
        "select c.id from w, stepwell.claim(w.id, '{default}', null, null, null, '{note}', 1000) c"
    )
    conn.execute(
        "select stepwell.finish(array[j.id], array[j.epoch], array[%s], '{60}') from stepwell.jobs j where j.id = %s",
        (result, job_id),
    )


def listeners(conn: psycopg.Connection[Any]) -> int:
    cursor = conn.execute(
        "select count(*) from pg_locks l join pg_database d on d.oid = l.database "
        "where d.datname = current_database() and l.locktype = 'advisory' and l.mode = 'ShareLock'"
    )
    return (cursor.fetchone() or (0,))[0]


async def test_many_who_wait_share_one_listener(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def note(n: int) -> int:
        return n

    jobs = await note.aenqueue_many([{"n": n} for n in range(300)])
    waiting = [asyncio.create_task(job.aresult(timeout="30s")) for job in jobs]
    await asyncio.to_thread(until, lambda: listeners(conn) == 1)
    async with Worker(app):
        assert await asyncio.gather(*waiting) == list(range(300))
    assert listeners(conn) == 1


async def test_a_notification_that_comes_with_the_answer_of_a_query_wakes_who_waits(
    app: App, dsn: str, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only a notification tells of the end.
    monkeypatch.setattr("stepwell.jobs.waiter._POLL", 600.0)
    monkeypatch.setattr("stepwell.jobs.waiter._EARLY_POLLS", (600.0,))

    @app.task
    async def note(n: int) -> int:
        return n

    job = await note.aenqueue(1)
    waiting = asyncio.create_task(job.aresult(timeout="20s"))
    await asyncio.to_thread(until, lambda: listeners(conn) == 1)
    other = await note.using(delay="1h").aenqueue(2)
    with psycopg.connect(dsn) as locking:
        locking.execute("lock table stepwell.failure in access exclusive mode")
        # The listener asks for the other job, and waits for this lock, which no success needs.
        also = asyncio.create_task(other.aresult(timeout="20s"))
        blocked = (
            "select exists (select from pg_locks l join pg_database d on d.oid = l.database"
            " where d.datname = current_database() and l.relation = 'stepwell.failure'::regclass and not l.granted)"
        )
        await asyncio.to_thread(until, lambda: (conn.execute(blocked).fetchone() or (False,))[0])
        await asyncio.to_thread(finish, conn, job.id, "41")
    assert await waiting == 41
    also.cancel()


@pytest.mark.slow
async def test_a_result_wakes_who_waits_at_once(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def note(n: int) -> int:
        return n

    job = await note.aenqueue(1)
    waiting = asyncio.create_task(job.aresult(timeout="30s"))
    await asyncio.to_thread(until, lambda: listeners(conn) == 1)
    await asyncio.sleep(0.8)  # past the early looks of a fresh listener, so that only NOTIFY can be quick
    began = time.monotonic()
    await asyncio.to_thread(finish, conn, job.id, "41")
    assert await waiting == 41
    assert time.monotonic() - began < 0.5


async def test_a_result_comes_although_somebody_keeps_the_lock_of_those_who_wait(
    app: App, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    @app.task
    async def note(n: int) -> int:
        return n

    with psycopg.connect(dsn, autocommit=True) as hostile:
        hostile.execute("select pg_advisory_lock(1937007980, 0)")
        async with Worker(app):
            jobs = await note.aenqueue_many([{"n": n} for n in range(3)])
            assert [await job.aresult(timeout="60s") for job in jobs] == [0, 1, 2]
        job = await note.aenqueue(1)
        waiting = asyncio.create_task(job.aresult(timeout="30s"))
        await asyncio.sleep(0)
    # Let go of, it is taken, so that jobs that end from now on are notified.
    await asyncio.to_thread(until, lambda: listeners(conn) == 1)
    await asyncio.to_thread(finish, conn, job.id, "41")
    assert await waiting == 41


def test_threads_wait_with_result(dsn: str, conn: psycopg.Connection[Any]) -> None:
    with App(dsn) as app:

        @app.task
        def note(n: int) -> int:
            return n

        jobs = note.enqueue_many([{"n": n} for n in range(8)])
        with ThreadPoolExecutor(8) as threads:
            waiting = [threads.submit(job.result, "30s") for job in jobs]
            until(lambda: listeners(conn) == 1)
            for n, job in enumerate(jobs):
                finish(conn, job.id, str(n))
            assert [future.result() for future in waiting] == list(range(8))


async def test_the_listener_comes_back_when_its_connection_is_cut(app: App, conn: psycopg.Connection[Any]) -> None:
    @app.task
    async def note(n: int) -> int:
        return n

    job = await note.aenqueue(1)
    waiting = asyncio.create_task(job.aresult(timeout="30s"))
    await asyncio.to_thread(until, lambda: listeners(conn) == 1)
    conn.execute(
        "select pg_terminate_backend(l.pid) from pg_locks l join pg_database d on d.oid = l.database "
        "where d.datname = current_database() and l.locktype = 'advisory' and l.mode = 'ShareLock'"
    )
    await asyncio.to_thread(finish, conn, job.id, "5")
    assert await waiting == 5


async def test_a_job_that_was_never_committed_is_not_waited_for(app: App, dsn: str) -> None:
    @app.task
    async def note(n: int) -> int:
        return n

    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        gone = await note.using(connection=connection).aenqueue(1)
        await connection.rollback()
    with pytest.raises(JobNotFound, match="never committed"):
        await gone.aresult(timeout="10s")
    with pytest.raises(ConfigError, match="give a UUID"):
        app.job("not an id")


async def test_giving_up_leaves_nothing_behind(app: App) -> None:
    @app.task
    async def note(n: int) -> int:
        return n

    job = await note.using(delay="1h").aenqueue(1)
    for _ in range(3):
        with pytest.raises(TimeoutError, match="it is not due yet"):
            await job.aresult(timeout="10ms")
    waiting = asyncio.create_task(job.aresult())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert app._job_store.waiter._futures == {}  # pyright: ignore[reportPrivateUsage]


async def test_giving_up_on_a_job_that_fails_says_how_it_failed_last(app: App) -> None:
    @app.task(retry=Retry(initial="1h"))
    async def broken() -> None:
        raise ValueError("no such account")

    async with Worker(app):
        job = await broken.aenqueue()
        await auntil(lambda: failed_once(job))
        with pytest.raises(TimeoutError, match=r"attempt 1 failed: ValueError: no such account \(waits until"):
            await job.aresult(timeout="10ms")


async def failed_once(job: Any) -> bool:
    info = await job.ainfo()
    return bool(info.failures)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_opens_its_own_connections(dsn: str, conn: psycopg.Connection[Any]) -> None:
    with App(dsn) as app:

        @app.task
        def note(n: int) -> int:
            return n

        with pytest.raises(TimeoutError):
            note.enqueue(1).result(timeout="10ms")  # pools and listener are up in this process
        child = os.fork()
        if child == 0:
            code = 1
            try:
                job = note.enqueue(2)
                finish(psycopg.connect(dsn, autocommit=True), job.id, "22")
                code = 0 if job.result(timeout="10s") == 22 else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert note.enqueue(3).info() is not None


def test_many_callers_do_not_make_the_waiter_connect_without_a_pause() -> None:
    """A server that turns every connection away, as one does that is starting."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        app = App(f"postgresql://nobody@127.0.0.1:{server.getsockname()[1]}/nothing?sslmode=disable&gssencmode=disable")

        @app.task
        def work() -> None: ...

        waiter = work.job_store.waiter
        connections, end = 0, time.monotonic() + 1.5
        for n in range(5):
            waiter.wait(f"00000000-0000-0000-0000-00000000000{n}")
        # A busy machine needs longer for the second one. More than a few come only without a pause.
        while time.monotonic() < end or connections < 2:
            with contextlib.suppress(TimeoutError):
                server.accept()[0].close()
                connections += 1
        waiter.close()
    assert connections <= 12
