"""FastAPI, Starlette and Litestar, over real HTTP: a job runs in the site's process, and a browser watches it."""

from __future__ import annotations

import asyncio
import importlib
import logging
from contextlib import aclosing
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route
from waiting import auntil

from stepwell import App, ConfigError, Context, SchemaMismatch, StepwellError, Worker
from stepwell.contrib.asgi import lifespan
from stepwell.contrib.sse import EventStream

from .http import events, serve

EXAMPLES = ("fastapi_app", "starlette_app", "litestar_app")


@pytest.fixture(params=EXAMPLES)
def example(request: pytest.FixtureRequest, dsn: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An example, on this test's database."""

    def on_this_database(_: str) -> App:
        return App(dsn)

    monkeypatch.setattr("stepwell.App", on_this_database)
    return importlib.reload(importlib.import_module(f"examples.{request.param}"))


async def test_an_example_runs_a_job_and_shows_it_to_the_browser(example: ModuleType) -> None:
    async with serve(example.site) as client:
        answer = await client.post("/render", params={"pages": 4})
        assert answer.status_code == 202
        path = f"/jobs/{answer.json()['id']}"
        seen = [event async for event in events(client, f"{path}/events")]
        assert [event.name for event in seen[:-1]] == ["change"] * (len(seen) - 1)
        assert (seen[-1].name, seen[-1].data["state"], seen[-1].data["result"]) == ("end", "succeeded", "4 pages")
        reports = [event.data["progress"] for event in seen if event.data["progress"]]
        assert reports
        assert {"done": reports[0]["done"], "total": 4, "message": reports[0]["message"]} == reports[0]
        # A browser that connects again after the end gets the end again, and can close the stream.
        [again] = [event async for event in events(client, f"{path}/events", seen[-1].id)]
        assert again == seen[-1]
        assert (await client.get(f"/jobs/{'0' * 8}-0000-7000-8000-{'0' * 12}/events")).status_code == 404
        assert (await client.get("/jobs/x/events")).status_code in (404, 422)


async def test_a_browser_that_reconnects_gets_only_what_has_changed(app: App) -> None:
    @app.task
    async def slow(ctx: Context) -> str:
        await ctx.receive("go")
        return "done"

    job = await slow.aenqueue()

    async def watch(request: Any) -> StreamingResponse:
        stream = EventStream(job, request.headers.get("last-event-id"), heartbeat=0.05, show=lambda c: c.state)
        return StreamingResponse(stream, media_type="text/event-stream")

    site = Starlette(routes=[Route("/events", watch)], lifespan=lifespan(app, worker=Worker))
    waiter = slow.job_store.waiter
    async with serve(site) as client:
        last_id = ""
        async with aclosing(events(client, "/events")) as first:
            async for event in first:
                last_id = event.id
                if event.data == "waiting":
                    break
        # It has gone: nobody watches the job any more.
        await auntil(lambda: not waiter._watches)  # pyright: ignore[reportPrivateUsage]
        later: list[Any] = []

        async def reconnect() -> None:
            later.extend([one.data async for one in events(client, "/events", last_id)])

        again = asyncio.create_task(reconnect())
        await auntil(lambda: bool(waiter._watches))  # pyright: ignore[reportPrivateUsage]
        await job.asend("go")
        await again
        assert "waiting" not in later
        assert later[-1] == "succeeded"


async def test_a_site_that_stops_waits_for_its_jobs(app: App) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow() -> int:
        begun.set()
        await go_on.wait()
        return 1

    job = await slow.aenqueue()
    async with serve(Starlette(lifespan=lifespan(app, worker=partial(Worker, grace="20s")))):
        await begun.wait()
        asyncio.get_running_loop().call_later(0.2, go_on.set)
    assert await job.aresult() == 1


async def test_a_worker_that_cannot_start_stops_the_site(app: App, empty_dsn: str) -> None:
    with pytest.raises(ConfigError, match="no tasks"):
        async with lifespan(app, worker=Worker)(None):
            pass
    with pytest.raises(SchemaMismatch):
        async with lifespan(App(empty_dsn))(None):
            pass
    with pytest.raises(ConfigError, match="give the class"):
        lifespan(app, worker=True)  # pyright: ignore[reportArgumentType]


async def test_a_worker_that_dies_is_started_again(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.contrib.asgi._FIRST_PAUSE", 0.01)

    class Fragile(Worker):
        """Dies when it is stopped for the first time."""

        died = False

        async def run(self) -> None:
            await super().run()
            if not self.died:
                Fragile.died = True
                raise StepwellError("the disk is full")

    @app.task
    async def die() -> None:
        made[0].stop()

    @app.task
    async def add(x: int, y: int) -> int:
        return x + y

    made: list[Fragile] = []

    def make(app: App) -> Worker:
        made.append(Fragile(app))
        return made[0]

    with caplog.at_level(logging.ERROR, "stepwell"):
        async with serve(Starlette(lifespan=lifespan(app, worker=make))):
            await die.aenqueue()
            await auntil(lambda: Fragile.died)
            job = await add.aenqueue(1, 2)
            assert await job.aresult(timeout="20s") == 3
    [record] = [record for record in caplog.records if record.name == "stepwell"]
    assert "the worker of this site has ended: the disk is full" in record.message
    assert record.exc_info


async def test_a_stream_ends_for_a_job_whose_end_cannot_be_read(app: App) -> None:
    @app.task(keep=0)
    async def forgotten() -> int:
        return 1

    job = await forgotten.aenqueue()
    async with Worker(app):
        seen = [event async for event in EventStream(job)]
    assert seen[-1].startswith(b'event: end\ndata: {"state":null,"error":"')


async def test_a_stream_without_an_answer_just_ends_so_that_the_browser_connects_again(dsn: str) -> None:
    app = App(dsn)

    @app.task
    async def later() -> None: ...

    async with app:
        job = await later.aenqueue()
        timed = [event async for event in EventStream(job, timeout="300ms")]
        closing = EventStream(job)
        events = aiter(closing)
        first = await anext(events)
    assert [event async for event in events] == []  # the app was closed
    assert b"event: change" in first
    assert timed
    assert all(b"event: end" not in event for event in timed)
