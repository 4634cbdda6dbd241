"""Another server takes over: nothing acknowledged is lost, and work goes on by itself."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from stepwell import App, Context, DatabaseError, JobFailed, Worker
from stepwell.postgres.threads import in_thread
from tests.waiting import Heard, auntil, until

from .server import Server

pytestmark = pytest.mark.crash


def app_on(url: str, **options: Any) -> App:
    app = App(url, **options)

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    return app


class Receipts:
    """Enqueues from several threads and from the event loop until told to stop, and keeps what was acknowledged."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._stopping = False
        self._threads = [threading.Thread(target=self._enqueue, args=(many,)) for many in (False, False, True)]
        self.ids: list[str] = []
        self.refused = 0

    async def __aenter__(self) -> Receipts:
        for thread in self._threads:
            thread.start()
        self._task = asyncio.create_task(self._aenqueue())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        await self._task
        for thread in self._threads:
            await in_thread(thread.join)

    def _enqueue(self, many: bool) -> None:
        add = self._app.tasks["add"]
        items = [{"a": n, "b": n} for n in range(2500 if many else 1)]
        while not self._stopping:
            try:
                self.ids += [str(job.id) for job in add.enqueue_many(items)]
            except DatabaseError:
                self.refused += 1
            time.sleep(0.2 if many else 0.002)

    async def _aenqueue(self) -> None:
        add = self._app.tasks["add"]
        while not self._stopping:
            for done in await asyncio.gather(*(add.aenqueue(1, 2) for _ in range(5)), return_exceptions=True):
                if isinstance(done, BaseException):
                    assert isinstance(done, DatabaseError), done
                    self.refused += 1
                else:
                    self.ids.append(str(done.id))
            await asyncio.sleep(0.01)


def missing(server: Server, ids: list[str]) -> int:
    with server.connect() as connection:
        known = "select count(*) from stepwell.jobs j where j.id = any (%s::uuid[])"
        return len(ids) - number(connection, known, ids)


def number(connection: psycopg.Connection[Any], query: Any, *params: Any) -> int:
    row = connection.execute(query, params).fetchone()
    assert row is not None
    return int(row[0])


async def seconds_until(holds: Callable[[], Any]) -> float:
    began = time.monotonic()
    await auntil(holds)
    return time.monotonic() - began


async def test_a_killed_primary_costs_no_acknowledged_job(primary: Server, standby: Server, both: str) -> None:
    async with app_on(both) as app, Worker(app, lease="60s", renew="5s"):
        async with Receipts(app) as receipts:
            await auntil(lambda: len(receipts.ids) > 4000)
            await in_thread(primary.kill)
            await in_thread(standby.promote)
            before = len(receipts.ids)
            await auntil(lambda: len(receipts.ids) > before + 100)
        assert missing(standby, receipts.ids) == 0
        with standby.connect() as connection:
            await auntil(lambda: number(connection, "select count(*) from stepwell.job") == 0, within=60)
            done = number(connection, "select count(*) from stepwell.history where state = 'succeeded'")
            assert done >= len(receipts.ids) == len(set(receipts.ids))


@pytest.mark.slow
async def test_work_goes_on_after_a_switchover_that_keeps_the_sessions(
    primary: Server, standby: Server, both: str
) -> None:
    # An idle worker that asks for nothing: only the producer beside it finds out that the server takes no writes.
    async with app_on(both) as app, app_on(both) as waits:
        add = app.tasks["add"]
        async with Worker(app, poll="60s", lease="60s", renew="20s") as worker:
            heard = Heard(worker)
            assert await (await add.aenqueue(1, 2)).aresult(timeout="20s") == 3
            later = waits.job((await add.using(queue="later").aenqueue(2, 3)).id)
            waiting = asyncio.create_task(later.aresult(timeout="60s"))
            sync_waiting = asyncio.ensure_future(in_thread(lambda: later.result(timeout="60s")))
            assert await waits.job(later.id).ainfo() is not None
            assert primary.sessions() > 5
            primary.take_writes(allowed=False)
            await in_thread(standby.promote)
            began = time.monotonic()
            job = await add.aenqueue(3, 4)
            # This one has connections to the former primary only, which does not know the job.
            assert await waits.job(job.id).ainfo() is not None
            assert await job.aresult(timeout="20s") == 7
            assert await in_thread(lambda: add.enqueue(4, 5).result(timeout="20s")) == 9
            assert time.monotonic() - began < 5
            # The listener and those who wait for results got no error, and left all the same.
            assert await seconds_until(lambda: primary.sessions() == 0) < 6
            async with Worker(app, queues=["later"]):
                assert [await waiting, await sync_waiting] == [5, 5]
            assert not [event for event in heard.events if type(event).__name__ in ("LeaseLost", "LoopFailed")]


@pytest.mark.slow
async def test_a_server_that_takes_no_writes_for_a_while_is_used_again(primary: Server) -> None:
    async with app_on(primary.dsn) as app:
        add = app.tasks["add"]
        async with Worker(app):
            assert await (await add.aenqueue(1, 2)).aresult(timeout="20s") == 3
            primary.take_writes(allowed=False)
            items = [{"a": 1, "b": 2}] * 3000
            for call in (
                lambda: add.aenqueue(1, 2),
                lambda: add.aenqueue_many(items),
                lambda: in_thread(lambda: add.enqueue(1, 2)),
                lambda: in_thread(lambda: add.enqueue_many(items)),
            ):
                with pytest.raises(DatabaseError, match=r"takes no writes .*nothing was written"):
                    await call()
            primary.take_writes(allowed=True)
            began = time.monotonic()
            assert await (await add.aenqueue(3, 4)).aresult(timeout="20s") == 7
            assert await in_thread(lambda: add.enqueue(4, 5).result(timeout="20s")) == 9
            assert time.monotonic() - began < 5
        with primary.connect() as connection:
            assert number(connection, "select count(*) from stepwell.jobs") == 3


async def test_a_transaction_that_only_reads_by_its_own_wish_drops_no_connection(primary: Server) -> None:
    async with app_on(primary.dsn) as app:

        @app.task(transaction=True)
        async def read(ctx: Context) -> None:
            await ctx.connection.execute("set transaction read only")

        async with Worker(app):
            with pytest.raises(JobFailed, match="read-only"):
                await (await read.using(max_attempts=1).aenqueue()).aresult(timeout="20s")
        assert app.database.switchovers.count == 0


@pytest.mark.slow
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_producer_is_back_as_soon_as_its_database(primary: Server, is_async: bool) -> None:
    async with app_on(primary.dsn, call_timeout="30s") as app:
        add = app.tasks["add"]

        async def enqueue() -> Any:
            return await (add.aenqueue(1, 2) if is_async else in_thread(lambda: add.enqueue(1, 2)))

        async def emit() -> Any:
            await (app.aemit("e") if is_async else in_thread(lambda: app.emit("e")))

        # Several connections that will be dead.
        await asyncio.gather(*(emit() for _ in range(8)))
        await in_thread(primary.stop)
        calls = [asyncio.ensure_future(enqueue()) for _ in range(3)]
        await asyncio.sleep(3.5)  # as long as it takes a delay that doubles to reach two seconds
        await in_thread(primary.start)
        began = time.monotonic()
        assert len({job.id for job in await asyncio.gather(*calls)}) == 3
        assert time.monotonic() - began < 2


def test_one_of_several_hosts_must_take_writes_unless_the_url_says_otherwise() -> None:
    def dsn(url: str) -> str:
        return App(url).database.dsn

    assert "target_session_attrs=read-write" in dsn("postgresql://a,b/db")
    assert "target_session_attrs=any" in dsn("postgresql://a,b/db?target_session_attrs=any")
    assert "target_session_attrs" not in dsn("postgresql://a/db")


@pytest.mark.slow
def test_a_standby_alone_is_explained(primary: Server, standby: Server) -> None:
    until(lambda: _has_schema(standby))
    with app_on(standby.dsn) as app, pytest.raises(DatabaseError, match="name the primary in the URL"):
        app.tasks["add"].enqueue(1, 2)


def _has_schema(server: Server) -> bool:
    with psycopg.connect(server.dsn) as connection:
        return bool(connection.execute("select to_regproc('stepwell.enqueue')").rowcount)
