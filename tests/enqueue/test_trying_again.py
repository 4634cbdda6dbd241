"""Calls that met another transaction, or lost their connection, are made again where that is safe."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from waiting import until

from stepwell import App, DatabaseError


def waits(conn: psycopg.Connection[Any], blocker: psycopg.Connection[Any]) -> int | None:
    """The session that waits for another, if one does."""
    found = conn.execute(
        "select pid from pg_stat_activity where %s = any (pg_blocking_pids(pid))", (blocker.info.backend_pid,)
    ).fetchone()
    return found[0] if found else None


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_cancel_that_deadlocks_is_made_again(
    app: App, dsn: str, conn: psycopg.Connection[Any], is_async: bool
) -> None:
    @app.task
    async def work() -> None: ...

    parent, child = await work.aenqueue(), await work.aenqueue()
    conn.execute("update stepwell.job set parent_id = %s, parent_key = 'c' where id = %s", (parent.id, child.id))
    with psycopg.connect(dsn) as other:
        other.execute("set deadlock_timeout = '1min'")
        other.execute("select from stepwell.job where id = %s for update", (child.id,))
        cancelled = asyncio.create_task(parent.acancel() if is_async else asyncio.to_thread(parent.cancel))
        await asyncio.to_thread(until, lambda: waits(conn, other))
        # Now each waits for the other, and Postgres ends the one that is ours.
        await asyncio.to_thread(other.execute, "select from stepwell.job where id = %s for update", (parent.id,))
        other.rollback()
        assert await cancelled
    assert conn.execute("select from stepwell.jobs where state = 'cancelled'").rowcount == 2


def test_a_look_that_lost_its_connection_is_taken_again(dsn: str, conn: psycopg.Connection[Any]) -> None:
    with App(dsn) as app, psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as threads:

        @app.task
        def work() -> None: ...

        job = work.enqueue()
        other.execute("lock table stepwell.history in access exclusive mode")
        looked = threads.submit(job.info)
        pid = until(lambda: waits(conn, other))
        conn.execute("select pg_terminate_backend(%s)", (pid,))
        until(lambda: waits(conn, other) not in (None, pid))
        other.rollback()
        info = looked.result(20)
        assert info is not None
        assert info.state == "ready"


def test_an_enqueue_that_lost_its_connection_is_not_made_again(dsn: str, conn: psycopg.Connection[Any]) -> None:
    with App(dsn) as app, psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as threads:

        @app.task
        def work() -> None: ...

        work.enqueue()
        other.execute("lock table stepwell.job in exclusive mode")
        enqueued = threads.submit(work.enqueue)
        conn.execute("select pg_terminate_backend(%s)", (until(lambda: waits(conn, other)),))
        with pytest.raises(DatabaseError):
            enqueued.result(20)
        other.rollback()
    assert conn.execute("select from stepwell.job").rowcount == 1


def test_an_emit_that_fails_to_serialise_is_made_again_only_so_often(dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("create sequence tries")
    conn.execute(
        "create function conflict() returns trigger language plpgsql security definer as $$begin"
        " if nextval('public.tries') % 10 <> 3 then raise exception 'conflict' using errcode = '40001'; end if;"
        " return new; end$$"
    )
    conn.execute("create trigger conflict before insert on stepwell.event for each row execute function conflict()")
    with App(dsn) as app:
        app.emit("done")
        assert conn.execute("select from stepwell.event").rowcount == 1
        with pytest.raises(DatabaseError, match="conflict"):
            app.emit("done")
    assert conn.execute("select last_value from tries").fetchone() == (10,)
