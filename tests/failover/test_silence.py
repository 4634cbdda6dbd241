"""A server that lives and says nothing: every call ends in time, and says what is known of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from waiting import Heard

from stepwell import App, DatabaseTimeout, JobHandle, StepwellError, Worker
from stepwell.postgres.threads import in_thread
from stepwell.telemetry.jobs import JobStarted
from stepwell.telemetry.worker import OutcomesUnwritten, WorkerStopping

from .server import Server

pytestmark = pytest.mark.crash

_LIMIT = 1.0
# What a busy machine may add.
_GRACE = 1.5

Calls = dict[str, Callable[[], Any]]


def app_on(server: Server, **options: Any) -> App:
    app = App(server.dsn, call_timeout=_LIMIT, **options)

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    return app


def sync_calls(app: App, job: JobHandle[Any]) -> Calls:
    add = app.tasks["add"]
    return {
        "enqueue": lambda: add.enqueue(1, 2),
        "enqueue_many": lambda: add.enqueue_many([{"a": n, "b": n} for n in range(10)]),
        "enqueue_many in chunks": lambda: add.enqueue_many([{"a": n, "b": n} for n in range(5000)]),
        "emit": lambda: app.emit("done"),
        "send": lambda: job.send("name"),
        "info": job.info,
        "cancel": job.cancel,
        "retry": job.retry,
        "result": job.result,
        "result in a minute": lambda: job.result(timeout="1m"),
        "schedules": app.schedules,
        "pause": lambda: app.pause("q"),
        "cancel_jobs": lambda: app.cancel_jobs(everything=True),
    }


def async_calls(app: App, job: JobHandle[Any]) -> Calls:
    add = app.tasks["add"]
    return {
        "enqueue": lambda: add.aenqueue(1, 2),
        "enqueue, behind another": lambda: _later(lambda: add.aenqueue(1, 2)),
        "enqueue_many": lambda: add.aenqueue_many([{"a": n, "b": n} for n in range(10)]),
        "enqueue_many in chunks": lambda: add.aenqueue_many([{"a": n, "b": n} for n in range(5000)]),
        "emit": lambda: app.aemit("done"),
        "send": lambda: job.asend("name"),
        "info": job.ainfo,
        "cancel": job.acancel,
        "retry": job.aretry,
        "result": job.aresult,
        "result in a minute": lambda: job.aresult(timeout="1m"),
        "schedules": app.aschedules,
        "pause": lambda: app.apause("q"),
        "cancel_jobs": lambda: app.acancel_jobs(everything=True),
    }


async def _later(call: Callable[[], Awaitable[Any]]) -> Any:
    await asyncio.sleep(0.3)
    return await call()


async def ends(call: Callable[[], Any], *, is_async: bool) -> tuple[BaseException | None, float]:
    """The error of a call, and how long it took."""
    began = time.monotonic()
    try:
        await (call() if is_async else in_thread(call))
    except Exception as error:
        return error, time.monotonic() - began
    return None, time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("is_async", [False, True])
async def test_every_call_to_a_silent_server_ends_in_time(primary: Server, is_async: bool) -> None:
    # Fewer connections than calls: some wait for the server's answer, some for one that is being opened, some for
    # others to end.
    async with app_on(primary, pool_size=4) as app:
        job = await app.tasks["add"].aenqueue(1, 2)
        calls = (async_calls if is_async else sync_calls)(app, job)
        primary.pause()
        found = await asyncio.gather(*(ends(call, is_async=is_async) for call in calls.values()))
        for name, (error, seconds) in zip(calls, found, strict=True):
            assert isinstance(error, DatabaseTimeout), (name, error)
            assert "call_timeout" in str(error), name
            most = 2 * _LIMIT if "result" in name else _LIMIT  # its poll is every second
            assert seconds < most + _GRACE, (name, seconds)
        primary.resume()
        await app.tasks["add"].aenqueue(1, 2)


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_first_calls_of_an_app_end_in_time_as_well(primary: Server, is_async: bool) -> None:
    app = app_on(primary)
    primary.pause()
    job = app.job("01890000-0000-7000-8000-000000000000")
    calls = (async_calls if is_async else sync_calls)(app, job)
    names = ["enqueue", "info", "emit", "cancel"]
    found = await asyncio.gather(*(ends(calls[name], is_async=is_async) for name in names))
    for name, (error, seconds) in zip(names, found, strict=True):
        assert isinstance(error, DatabaseTimeout), (name, error)
        assert "Nothing was sent" in str(error), name
        # Not when the connect_timeout of the URL is over, which is 10 s. How much sooner depends on the machine.
        assert seconds < 9, (name, seconds)
    primary.resume()
    await app.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_result_that_is_not_there_in_time_is_late_and_not_lost(primary: Server, is_async: bool) -> None:
    async with app_on(primary) as app:
        job = await app.tasks["add"].aenqueue(1, 2)
        with pytest.raises(TimeoutError):
            await job.aresult(timeout="100ms")
        primary.pause()
        call = (lambda: job.aresult(timeout="300ms")) if is_async else (lambda: job.result(timeout="300ms"))
        error, seconds = await ends(call, is_async=is_async)
        assert type(error) is TimeoutError
        assert seconds < 0.3 + 1 + _GRACE
        primary.resume()


@pytest.mark.slow
async def test_a_call_that_is_cut_off_is_told_from_one_that_was_not_sent(primary: Server) -> None:
    async with app_on(primary, pool_size=1) as app:
        add = app.tasks["add"]
        await add.aenqueue(1, 2)
        primary.pause()
        with pytest.raises(DatabaseTimeout, match=r"has not answered for 1s .*It is unknown whether"):
            await add.aenqueue(1, 2)
        with pytest.raises(DatabaseTimeout, match=r"gave no connection within 1s .*Nothing was sent"):
            await add.aenqueue(1, 2)
        primary.resume()


@pytest.mark.slow
async def test_a_long_call_that_goes_on_is_not_cut_off(primary: Server) -> None:
    async with app_on(primary) as app:
        with primary.connect() as connection:
            # Each chunk takes half of the limit.
            connection.execute(
                "create function slow() returns trigger language plpgsql as $$"
                "begin perform pg_sleep(0.5); return null; end$$"
            )
            connection.execute("create trigger slow after insert on stepwell.job execute function slow()")
        items = [{"a": n, "b": n} for n in range(8000)]
        began = time.monotonic()
        assert len(await app.tasks["add"].aenqueue_many(items)) == 8000
        assert len(await asyncio.to_thread(app.tasks["add"].enqueue_many, items)) == 8000
        assert time.monotonic() - began > 2 * _LIMIT


def test_a_limit_must_be_some_time_or_none() -> None:
    assert App("embedded").database.call_timeout == 10
    assert App("embedded", call_timeout=None).database.call_timeout is None
    for wrong in (0, -1, "soon"):
        with pytest.raises(Exception, match="call_timeout is"):
            App("embedded", call_timeout=wrong)


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("cancels", [0, 2])
async def test_a_worker_that_is_to_stop_now_ends_although_the_server_is_silent(
    primary: Server, busy: bool, cancels: int
) -> None:
    async with app_on(primary) as app:

        @app.task
        async def endless() -> None:
            await asyncio.Event().wait()

        worker = Worker(app)
        heard = Heard(worker)
        running = asyncio.create_task(worker.run())
        await worker.started()
        if busy:
            await endless.aenqueue()
            await heard.wait_for(JobStarted)
        primary.pause()
        if cancels:
            running.cancel()
            await heard.wait_for(WorkerStopping)
            running.cancel()
        else:
            worker.stop_now()
        _, late = await asyncio.wait([running], timeout=60)  # about 10 s, or the lease of 20 s; it was never
        primary.resume()
        assert not late
        assert running.cancelled() == bool(cancels)
        if cancels:
            assert len(heard.of(OutcomesUnwritten)) == busy
        elif busy:
            with pytest.raises(StepwellError, match="stopped with 1 outcome that could not be written in time"):
                await running
