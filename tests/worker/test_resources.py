"""Resources: opened once by each worker, passed to handlers of every kind, and closed in reverse order."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NewType

import process_tasks
import pytest
from waiting import Heard

from stepwell import App, BadArgs, ConfigError, Fail, Injected, JobFailed, Retry, StepwellError, SyncContext, Worker
from stepwell.plugins import Run
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.jobs import AttemptFailed, JobSucceeded
from stepwell.telemetry.worker import ResourceNotClosed


class Client:
    """A client that must be closed."""

    def __init__(self) -> None:
        self.closed = False

    def ask(self, what: str) -> str:
        assert not self.closed
        return f"asked {what}"


class Model:
    """Something that takes no closing."""


async def test_handlers_of_every_kind_share_what_the_worker_opened(app: App) -> None:
    happened: list[str] = []
    seen: list[Client] = []

    @app.resource
    async def client() -> AsyncIterator[Client]:
        happened.append("client opened")
        made = Client()
        yield made
        made.closed = True
        happened.append("client closed")

    @app.resource
    def model() -> Iterator[Model]:
        assert threading.current_thread() is not threading.main_thread()
        happened.append("model opened")
        yield Model()
        happened.append("model closed")

    @app.task
    async def injected(n: int, client: Client = Injected, *, model: Model = Injected) -> str:
        assert isinstance(model, Model)
        seen.append(client)
        return client.ask(str(n))

    @app.task
    def in_thread(ctx: SyncContext, n: int, client: Client = Injected) -> str:
        seen.append(ctx.resource(Client))
        return client.ask(str(n))

    @app.task(batch=10)
    async def many(numbers: list[int], client: Client = Injected) -> list[str]:
        return [client.ask(str(n)) for n in numbers]

    async def fetch(client: Client = Injected, name: str = "x") -> str:
        return client.ask(name)

    def shout(text: str, client: Client = Injected) -> str:
        return client.ask(text).upper()

    chain = app.chain("chain", fetch, shout)

    @app.on_worker_start
    def hook() -> None:
        happened.append("hook")

    async with Worker(app):
        assert await (await injected.aenqueue(1)).aresult(timeout="20s") == "asked 1"
        assert await (await in_thread.aenqueue(2)).aresult(timeout="20s") == "asked 2"
        assert await (await many.aenqueue(3)).aresult(timeout="20s") == "asked 3"
        assert await (await chain.aenqueue(name="tea")).aresult(timeout="20s") == "ASKED ASKED TEA"
    assert seen[0] is seen[1]
    assert seen[0].closed
    assert happened == ["client opened", "model opened", "hook", "model closed", "client closed"]
    # A job has no such argument; a direct call may have it.
    with pytest.raises(BadArgs, match="does not know 'client'"):
        await injected.aenqueue(1, client=Client())
    with pytest.raises(ConfigError, match="pass it by name"):
        await injected(1, model=Model())
    assert await injected(1, Client(), model=Model()) == "asked 1"
    # Whoever looks at defaults finds nothing, and does not fail.
    assert not hasattr(Injected, "ask")
    assert not inspect.iscoroutinefunction(Injected)


async def test_a_resource_that_fails_to_open_stops_the_start_and_closes_the_others(app: App) -> None:
    closed: list[str] = []

    @app.resource
    @asynccontextmanager
    async def client() -> AsyncGenerator[Client]:
        yield Client()
        closed.append("client")

    @app.resource
    def model() -> Model:
        raise OSError("no such file: weights.bin")

    @app.task
    async def note() -> None: ...

    with pytest.raises(StepwellError, match=r"did not start: its resource .*model failed: OSError: no such file"):
        await Worker(app).run()
    assert closed == ["client"]


async def test_a_resource_that_nobody_makes_is_named_at_the_start(app: App) -> None:
    @app.task
    async def injected(client: Client = Injected) -> None: ...

    with pytest.raises(ConfigError, match=r"'injected': no resource makes the .*Client for its parameter 'client'"):
        await Worker(app).run()
    with pytest.raises(ConfigError, match="needs an annotation"):

        @app.task
        async def bare(client=Injected) -> None: ...  # type: ignore[no-untyped-def]  # pyright: ignore


def test_what_cannot_be_a_resource_is_refused(app: App) -> None:
    Primary = NewType("Primary", Client)

    @app.resource
    def client() -> Client:
        return Client()

    @app.resource
    def primary() -> Primary:
        return Primary(Client())

    for make, said in (
        (lambda: 1, "does not say what it makes"),
        (Client, "takes a function"),
    ):
        with pytest.raises(ConfigError, match=said):
            app.resource(make)

    def twin() -> AbstractAsyncContextManager[Client]: ...  # type: ignore[empty-body]

    def needs(x: int) -> Model: ...  # type: ignore[empty-body]

    def nothing() -> None: ...

    for wrong, said in ((twin, "both make a"), (needs, "takes arguments"), (nothing, "makes nothing")):
        with pytest.raises(ConfigError, match=said):
            app.resource(wrong)  # type: ignore[type-var]  # pyright: ignore


async def test_a_process_opens_its_own(app: App) -> None:
    app.resource(process_tasks.opened)
    task = app.task(process=True)(process_tasks.counted.fn)
    async with Worker(app, process_slots=1):
        jobs = [await task.aenqueue() for _ in range(3)]
        opened = {tuple(await job.aresult(timeout="60s")) for job in jobs}
    assert [times for _, times in opened] == [1]

    @app.resource
    async def client() -> AsyncIterator[process_tasks.Client]:
        yield process_tasks.Client()

    app.task(process=True)(process_tasks.needs_client.fn)
    with pytest.raises(ConfigError, match=r"runs in a process, which has no event loop, and the resource .*client"):
        await Worker(app).run()


async def test_middleware_wraps_every_run_and_hooks_hear_every_event(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    around: list[str] = []
    heard: list[Telemetry] = []

    @app.middleware
    async def outer(run: Run, call: Callable[[], Awaitable[None]]) -> None:
        around.append(f"before {run.task}")
        try:
            await call()
        finally:
            around.append(f"after {run.task}: {run.outcome}")

    @app.middleware
    async def inner(run: Run, call: Callable[[], Awaitable[None]]) -> None:
        if run.task == "barred":
            raise Fail("not today")
        await call()

    @app.on_event(AttemptFailed)
    async def told(event: AttemptFailed) -> None:
        await asyncio.sleep(0.01)
        heard.append(event)

    @app.on_event(AttemptFailed, JobSucceeded)
    def also(event: Telemetry) -> None:
        assert threading.current_thread() is not threading.main_thread()
        heard.append(event)

    @app.on_event(JobSucceeded)
    def bad(event: JobSucceeded) -> None:
        raise ValueError(f"no {event.task}")

    @app.task
    async def fine() -> None: ...

    @app.task
    def barred() -> None: ...

    async with Worker(app):
        for _ in range(2):
            await (await fine.aenqueue()).aresult(timeout="20s")
        with pytest.raises(StepwellError, match="not today"):
            await (await barred.aenqueue()).aresult(timeout="20s")
    assert around == ["before fine", "after fine: succeeded"] * 2 + ["before barred", "after barred: None"]
    # All was heard by the time that the worker had stopped, and a hook that fails is called again.
    assert [type(event).__name__ for event in heard].count("JobSucceeded") == 2
    assert [type(event).__name__ for event in heard].count("AttemptFailed") == 2
    assert len([record for record in caplog.records if "failed with the event JobSucceeded" in record.message]) == 2
    with pytest.raises(ConfigError, match="async def"):
        app.middleware(lambda *_: None)  # type: ignore[arg-type]  # pyright: ignore
    with pytest.raises(ConfigError, match="classes of events"):
        app.on_event(int)  # type: ignore[type-var]  # pyright: ignore


async def test_a_lock_or_semaphore_is_the_resource_itself_and_is_free(app: App) -> None:
    @app.resource
    def few() -> asyncio.Semaphore:
        return asyncio.Semaphore(5)

    @app.resource
    def one() -> threading.Semaphore:
        return threading.Semaphore(1)

    @app.task
    async def uses(few: asyncio.Semaphore = Injected, one: threading.Semaphore = Injected) -> bool:
        async with few:
            return one.acquire(blocking=False)

    async with Worker(app):
        assert await (await uses.aenqueue()).aresult(timeout=10)


Directory = NewType("Directory", TemporaryDirectory[str])


async def test_what_is_entered_as_something_else_is_the_resource_and_is_not_entered(app: App) -> None:
    made: list[TemporaryDirectory[str]] = []

    @app.resource
    def lock() -> threading.Lock:
        return threading.Lock()

    @app.resource
    def again() -> threading.RLock:
        return threading.RLock()

    @app.resource
    def place() -> TemporaryDirectory[str]:
        made.append(TemporaryDirectory())
        return made[-1]

    @app.resource
    def other() -> Directory:
        made.append(TemporaryDirectory())
        return Directory(made[-1])

    @app.resource
    def opened() -> AbstractContextManager[Model]:
        return contextlib.nullcontext(Model())

    @app.task
    def uses(
        ctx: SyncContext,
        lock: threading.Lock = Injected,
        again: threading.RLock = Injected,
        other: Directory = Injected,
    ) -> list[bool]:
        return [
            not lock.locked(),
            again.acquire(blocking=False),
            Path(ctx.resource(TemporaryDirectory[str]).name).is_dir(),
            Path(other.name).is_dir(),
            isinstance(ctx.resource(Model), Model),
        ]

    async with Worker(app):
        assert await (await uses.aenqueue()).aresult(timeout=10) == [True] * 5
    for place_made in made:
        place_made.cleanup()


async def test_middleware_cannot_run_a_handler_twice_at_once(app: App) -> None:
    calls: list[str] = []

    @app.middleware
    async def twice(run: Run, call: Callable[[], Awaitable[None]]) -> None:
        await asyncio.gather(call(), call())

    @app.task(retry=Retry(max_attempts=1))
    async def slow() -> None:
        calls.append("called")
        await asyncio.sleep(0.1)

    async with Worker(app):
        with pytest.raises(JobFailed, match="twice"):
            await (await slow.aenqueue()).aresult(timeout=10)
    assert calls == ["called"]


async def test_a_resource_that_opens_when_the_worker_is_stopped_is_closed(app: App) -> None:
    opening, go_on = threading.Event(), threading.Event()
    happened: list[str] = []

    @app.resource
    def client() -> Iterator[Client]:
        opening.set()
        assert go_on.wait(10)
        happened.append("opened")
        yield Client()
        happened.append("closed")

    @app.task
    def nothing() -> None: ...

    worker = Worker(app)
    run = asyncio.create_task(worker.run())
    assert await asyncio.to_thread(opening.wait, 10)
    worker.stop()
    asyncio.get_running_loop().call_later(0.05, go_on.set)
    await run
    assert happened == ["opened", "closed"]


async def test_a_resource_that_opens_for_too_long_after_the_stop_is_named(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.resources.opened._OPEN_PATIENCE", 0.05)
    opening, go_on = threading.Event(), threading.Event()

    @app.resource
    def client() -> Iterator[Client]:
        opening.set()
        assert go_on.wait(60)
        yield Client()

    @app.task
    def nothing() -> None: ...

    worker = Worker(app)
    heard = Heard(worker)
    run = asyncio.create_task(worker.run())
    assert await asyncio.to_thread(opening.wait, 60)
    worker.stop()
    await run
    go_on.set()
    [left] = heard.of(ResourceNotClosed)
    assert left.text() == (
        f"the resource {client.__module__}.{client.__qualname__} still opens 50ms after the worker was asked to stop: "
        "the worker does not close it"
    )
