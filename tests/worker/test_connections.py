"""How many connections a worker holds, and how often it asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from waiting import auntil

from stepwell import App, Context, Worker
from stepwell.worker import connections, write_observer

_IDLE = 3
_BUSY = 5


@pytest.fixture(autouse=True)
def closed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_LONGEST_IDLE", 0.5)


@pytest.fixture
async def worked(dsn: str) -> AsyncIterator[App]:
    """An app for the worker alone. What a producer holds is its own."""
    async with App(make_conninfo(dsn, application_name="worked")) as app:
        yield app


@pytest.fixture
def held(conn: psycopg.Connection[Any]) -> Callable[[], int]:
    """How many connections the worker holds."""

    def count() -> int:
        row = conn.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'worked'"
        ).fetchone()
        assert row is not None
        return row[0]

    return count


async def nothing() -> None: ...


@pytest.mark.slow
async def test_an_idle_worker_holds_three_connections(worked: App, held: Callable[[], int]) -> None:
    worked.schedule("0 0 1 1 *")(worked.task(nothing))
    async with Worker(worked):
        await auntil(lambda: held() <= _IDLE)
        await asyncio.sleep(2.5)  # two rounds of upkeep, and a look
        assert held() <= _IDLE


async def stepped(ctx: Context) -> None:
    for _ in range(3):
        await ctx.step(nothing)


@pytest.mark.slow
async def test_a_busy_worker_holds_five_and_an_idle_one_again_three(
    app: App, worked: App, held: Callable[[], int]
) -> None:
    for task in (nothing, stepped):
        worked.task(task)
    most = 0
    async with Worker(worked, concurrency=50):
        jobs = await app.task(stepped).aenqueue_many([{} for _ in range(500)])
        plain = app.task(nothing)
        jobs += await plain.aenqueue_many([{} for _ in range(2000)])
        jobs += await plain.using(delay="300ms").aenqueue_many([{} for _ in range(500)])
        done = asyncio.gather(*(job.aresult(timeout="60s") for job in jobs))
        while not done.done():
            most = max(most, held())
            await asyncio.sleep(0.005)
        await done
        assert _IDLE < most <= _BUSY
        await auntil(lambda: held() <= _IDLE)


@pytest.mark.slow
async def test_an_idle_worker_makes_two_transactions_a_second(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.schedule("0 0 1 1 *")(app.task(nothing))
    asked: list[str] = []

    def note(_link: str, statement: str) -> Callable[[object], None]:
        asked.append(statement)
        return lambda _: None

    async with Worker(app, renew="5s"):
        await asyncio.sleep(1.5)
        monkeypatch.setattr(write_observer, "observer", note)
        await asyncio.sleep(8)
    # The lease is renewed over a connection of its own.
    assert (len(asked) + 8 / 5) / 8 <= 2, asked


async def test_a_slow_renewal_does_not_cost_the_session_that_holds_the_lock(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    def holder() -> int | None:
        row = conn.execute(
            "select pid from pg_locks where locktype = 'advisory' and classid = 1937007981 and granted"
            " and database = (select oid from pg_database where datname = current_database())"
        ).fetchone()
        return None if row is None else row[0]

    def waits_for(pid: int) -> bool:
        waiting = conn.execute(
            "select from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
            " and clock_timestamp() - query_start > interval '2 seconds'",
            [pid],
        )
        return waiting.fetchone() is not None

    async with App(dsn, call_timeout="1s") as app:
        app.task(nothing)
        async with Worker(app, renew="100ms"):
            pid = holder()
            assert pid is not None
            async with await psycopg.AsyncConnection.connect(dsn) as other:
                await other.execute("select from stepwell.worker for update")
                await auntil(lambda: waits_for(pid))
            assert holder() == pid
