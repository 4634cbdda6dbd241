"""Functions of `@app.on_event`: called with their events and no others, and waited for at the end, for a while."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from waiting import auntil

from stepwell import App, Plugin, Worker
from stepwell.plugins import event_hooks
from stepwell.telemetry.enqueue import JobEnqueued
from stepwell.telemetry.jobs import AttemptFailed, JobStarted, JobSucceeded


def test_a_hook_has_only_the_events_made_that_it_is_for(app: App) -> None:
    @app.on_event(AttemptFailed)
    def told(event: AttemptFailed) -> None: ...

    assert app.events.wanted(AttemptFailed)
    assert not app.events.wanted(JobStarted)
    assert not app.events.wanted(JobEnqueued)


def test_a_program_that_only_enqueues_and_closes_loses_no_event(app: App) -> None:
    heard: list[str] = []

    @app.on_event(JobEnqueued)
    def told(event: JobEnqueued) -> None:
        time.sleep(0.05)
        heard.append(event.task)

    @app.task
    def nothing() -> None: ...

    for _ in range(3):
        nothing.enqueue()
    app.close()
    assert heard == ["nothing"] * 3


async def test_closing_the_app_waits_for_async_hooks_and_leaves_the_event_loop_free(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_hooks, "_PATIENCE", 60.0)
    heard: list[str] = []
    may_end = threading.Event()

    @app.on_event(JobEnqueued)
    async def told(event: JobEnqueued) -> None:
        await asyncio.sleep(0.05)
        heard.append("async")
        may_end.set()

    @app.on_event(JobEnqueued)
    def blocks(event: JobEnqueued) -> None:
        # If closing blocked the loop, the async function could not let this one go on.
        assert may_end.wait(60)
        heard.append("plain")

    @app.task
    def nothing() -> None: ...

    await nothing.aenqueue()
    await app.aclose()
    assert heard == ["async", "plain"]


@pytest.mark.parametrize("patience", [0.1, pytest.param(3.0, marks=pytest.mark.slow)])
async def test_a_worker_waits_for_slow_hooks_of_both_kinds_once_and_cancels_them(
    app: App, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    monkeypatch.setattr(event_hooks, "_PATIENCE", patience)
    ended: list[str] = []
    go_on = threading.Event()

    @app.on_event(JobSucceeded)
    async def hangs(event: JobSucceeded) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    @app.on_event(JobSucceeded)
    def blocks(event: JobSucceeded) -> None:
        go_on.wait(60)

    @app.task
    async def nothing() -> None: ...

    async with Worker(app):
        await (await nothing.aenqueue()).aresult(timeout=60)
        since = time.monotonic()
    took = time.monotonic() - since
    go_on.set()
    await auntil(lambda: ended == ["cancelled"])
    assert took >= patience
    if patience > 1:  # the time of a short wait says nothing on a busy machine
        assert took < 1.9 * patience, "one wait for both"


def test_a_worker_that_stopped_while_hooks_hung_gets_no_more_events(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_hooks, "_PATIENCE", 0.1)
    monkeypatch.setattr("stepwell.plugins.loaded._STOP_PATIENCE", 0.15)
    heard: list[str] = []
    go_on = threading.Event()

    @app.on_event(JobSucceeded)
    def blocks(event: JobSucceeded) -> None:
        go_on.wait(60)

    @app.on_event(JobSucceeded)
    async def hangs(event: JobSucceeded) -> None:
        await asyncio.sleep(60)

    @app.on_event(JobEnqueued)
    async def told(event: JobEnqueued) -> None:
        heard.append(event.task)

    @app.task
    async def nothing() -> None: ...

    async def work() -> None:
        async with Worker(app):
            await (await nothing.aenqueue()).aresult(timeout=60)
        await app.aclose()

    async def only_enqueue() -> None:
        await nothing.aenqueue()
        await app.aclose()

    asyncio.run(work())
    go_on.set()
    heard.clear()
    monkeypatch.setattr(event_hooks, "_PATIENCE", 60.0)
    asyncio.run(only_enqueue())
    assert heard == ["nothing"]


def test_a_plugin_may_register_hooks_when_it_is_started(app: App) -> None:
    heard: list[str] = []

    class Registers(Plugin):
        def start_app(self, app: App) -> None:
            @app.on_event(JobEnqueued)
            def told(event: JobEnqueued) -> None:
                time.sleep(0.05)
                heard.append(event.task)

    @app.task
    def nothing() -> None: ...

    app.plugins.add(Registers(), app)
    nothing.enqueue()
    app.close()
    assert heard == ["nothing"]


def test_a_hook_may_close_the_app_while_the_app_is_closed(app: App) -> None:
    closing, closed = threading.Event(), threading.Event()

    class Closing(Plugin):
        def stop_app(self, app: App) -> None:
            closing.set()

    @app.task
    def nothing() -> None: ...

    @app.on_event(JobEnqueued)
    def told(event: JobEnqueued) -> None:
        assert closing.wait(10)
        app.close()
        closed.set()

    # The last plugin stops first: the hook is called in the midst of it.
    app.plugins.add(Closing(), app)
    nothing.enqueue()
    app.close()
    assert closed.is_set()
