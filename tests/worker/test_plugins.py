"""Plugins: called around enqueues and runs, with the app and the worker, and harmless when they fail."""

from __future__ import annotations

import contextvars
import faulthandler
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import pytest
from process_tasks import divide
from waiting import auntil

from stepwell import App, Cancel, ConfigError, Context, DatabaseError, JobCancelled, JobFailed, Plugin, Retry, Worker
from stepwell.plugins import Enqueue, Run
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.plugins import PluginFailed
from stepwell.values.job import ClaimedJob

locale: contextvars.ContextVar[str] = contextvars.ContextVar("locale", default="none")


class Diary(Plugin):
    """Notes every call of its hooks."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.lines: list[str] = []
        self.events: list[Telemetry] = []

    def on_event(self, event: Telemetry) -> None:
        self.events.append(event)

    def wrap_enqueue(self, enqueue: Enqueue) -> AbstractContextManager[object]:
        @contextmanager
        def around() -> Generator[None]:
            try:
                yield
            except BaseException as error:
                self.lines.append(f"not enqueued: {type(error).__name__}")
                raise
            self.lines.append(f"enqueued {enqueue.count} of {enqueue.task}: {len(enqueue.job_ids)} ids")

        return around()

    async def wrap_run(self, run: Run, call: Callable[[], Awaitable[None]]) -> None:
        locale.set(f"{self.name}{run.task}")
        try:
            await call()
        except BaseException as error:
            self.lines.append(f"{self.name}{run.task} raised {type(error).__name__}")
            raise
        self.lines.append(f"{self.name}{run.task} {run.outcome}, {len(run.jobs)} jobs")

    def start_app(self, app: App) -> None:
        self.lines.append("app starts")

    def stop_app(self, app: App) -> None:
        self.lines.append("app stops")

    async def start_worker(self, worker: Worker) -> None:
        self.lines.append("worker starts")

    async def stop_worker(self, worker: Worker) -> None:
        self.lines.append("worker stops")


async def test_a_plugin_sees_enqueues_runs_starts_and_stops(dsn: str) -> None:
    diary = Diary()
    app = App(dsn, plugins=[diary], retry=Retry(max_attempts=1))

    @app.task
    async def on_loop() -> str:
        return locale.get()

    @app.task
    def in_thread() -> str:
        return locale.get()

    @app.task(batch=5, batch_wait="10s")
    async def together(items: list[int]) -> list[int]:
        return items

    @app.task
    async def broken() -> None:
        raise LookupError("a")

    async with app, Worker(app):
        assert await (await on_loop.aenqueue()).aresult(timeout="20s") == "on_loop"
        assert await (await in_thread.aenqueue()).aresult(timeout="20s") == "in_thread"
        handles = await together.aenqueue_many([{"items": n} for n in range(5)])
        assert [await handle.aresult(timeout="20s") for handle in handles] == list(range(5))
        with pytest.raises(JobFailed, match="LookupError: a"):
            await (await broken.aenqueue()).aresult(timeout="20s")
    # A run may end before the enqueue has heard that it was committed.
    assert [line for line in diary.lines if line.startswith("enqueued")] == [
        "enqueued 1 of on_loop: 1 ids",
        "enqueued 1 of in_thread: 1 ids",
        "enqueued 5 of together: 5 ids",
        "enqueued 1 of broken: 1 ids",
    ]
    assert [line for line in diary.lines if not line.startswith("enqueued")] == [
        "app starts",
        "worker starts",
        "on_loop succeeded, 1 jobs",
        "in_thread succeeded, 1 jobs",
        "together succeeded, 5 jobs",
        "broken raised LookupError",
        "worker stops",
        "app stops",
    ]
    assert {"WorkerStarted", "JobStarted", "JobSucceeded", "AttemptFailed"} <= {
        type(event).__name__ for event in diary.events
    }


@pytest.mark.slow
async def test_a_process_task_is_wrapped_in_the_worker(dsn: str) -> None:
    diary = Diary()
    app = App(dsn, plugins=[diary], retry=Retry(max_attempts=1))
    task = app.task(process=True)(divide.fn)
    async with app, Worker(app, process_slots=1):
        await (await task.aenqueue(2)).aresult(timeout="30s")
        with pytest.raises(JobFailed, match="ZeroDivisionError"):
            await (await task.aenqueue(0)).aresult(timeout="30s")
    assert [line for line in diary.lines if line.startswith("divide")] == [
        "divide succeeded, 1 jobs",
        "divide raised JobFailed",
    ]


class Meddler(Plugin):
    """Decides by itself how runs end."""

    async def wrap_run(self, run: Run, call: Callable[[], Awaitable[None]]) -> None:
        if run.task == "skipped":
            raise Cancel("not today")
        if run.task == "forgotten":
            return
        try:
            await call()
        except LookupError as error:
            raise ZeroDivisionError("translated") from error
        except ValueError:
            pass
        if run.task == "late":
            raise RuntimeError("on the way out")


async def test_an_exception_of_a_plugin_is_the_runs(dsn: str) -> None:
    outer = Diary()
    app = App(dsn, plugins=[outer, Meddler()], retry=Retry(max_attempts=1))
    ran: list[str] = []

    def task(name: str, error: Exception | None = None) -> Any:
        async def run() -> None:
            ran.append(name)
            if error is not None:
                raise error

        return app.task(name=name)(run)

    tasks = [
        task("skipped"),
        task("forgotten"),
        task("found", LookupError()),
        task("kept", ValueError("own")),
        task("late"),
    ]
    said: dict[str, str] = {}
    async with app, Worker(app):
        for each in tasks:
            try:
                await (await each.aenqueue()).aresult(timeout="20s")
            except (JobFailed, JobCancelled) as error:
                said[each.name] = str(error)
    assert ran == ["found", "kept", "late"]
    assert "cancelled: not today" in said["skipped"]
    assert "without 'await call()'" in said["forgotten"]
    assert "ZeroDivisionError: translated" in said["found"]
    assert "ValueError: own" in said["kept"], "swallowing an exception does not make a run succeed"
    assert "RuntimeError: on the way out" in said["late"]
    assert "found raised ZeroDivisionError" in outer.lines, "the first plugin is the outermost"


@pytest.mark.parametrize("options", [{}, {"batch": 2}])
async def test_a_middleware_that_calls_not_once_is_named(dsn: str, options: dict[str, Any]) -> None:
    app = App(dsn, retry=Retry(max_attempts=1))

    @app.middleware
    async def meddle(run: Run, call: Callable[[], Awaitable[None]]) -> None:
        for _ in range(2 if run.task == "twice" else 0):
            await call()

    async def work(ns: list[int]) -> None: ...

    never, twice = (app.task(name=name, **options)(work) for name in ("never", "twice"))
    async with app, Worker(app):
        for task, said in ((never, "returned without 'await call()'"), (twice, "called the handler twice")):
            job = await task.aenqueue(cast("Any", 1) if options else [1])
            with pytest.raises(JobFailed) as failed:
                await job.aresult(timeout="60s")
            assert f"@app.middleware {meddle.__qualname__} {said}" in str(failed.value)


async def test_what_a_plugin_raises_after_a_transaction_is_only_logged(dsn: str) -> None:
    app = App(dsn, plugins=[Meddler()], retry=Retry(max_attempts=1))
    reported: list[Telemetry] = []
    app.subscribe(reported.append)

    @app.task(transaction=True)
    async def late(ctx: Context) -> int:
        return 1

    async with app, Worker(app):
        assert await (await late.aenqueue()).aresult(timeout="60s") == 1
        await auntil(lambda: any(isinstance(event, PluginFailed) for event in reported))


class Broken(Plugin):
    """Fails wherever it can without being a run's failure."""

    def on_event(self, event: Telemetry) -> None:
        raise RuntimeError("on_event")

    def wrap_enqueue(self, enqueue: Enqueue) -> AbstractContextManager[object]:
        @contextmanager
        def around() -> Generator[None]:
            yield
            raise RuntimeError("after")

        if enqueue.task == "second":
            raise RuntimeError("before")
        return around()

    def start_app(self, app: App) -> None:
        raise RuntimeError("start_app")

    async def start_worker(self, worker: Worker) -> None:
        raise RuntimeError("start_worker")


async def test_a_plugin_that_fails_is_logged_and_harms_nothing(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    app = App(dsn, plugins=[Broken()])

    @app.task
    async def first() -> int:
        return 1

    @app.task
    async def second() -> int:
        return 2

    with caplog.at_level(logging.ERROR, "stepwell"):
        async with app, Worker(app):
            assert await (await first.aenqueue()).aresult(timeout="20s") == 1
            assert await (await second.aenqueue()).aresult(timeout="20s") == 2
    logged = [record.getMessage() for record in caplog.records]
    assert [line for line in logged if "of plugin Broken failed" in line] == [
        "start_app of plugin Broken failed and is ignored: RuntimeError: start_app",
        "start_worker of plugin Broken failed and is ignored: RuntimeError: start_worker",
        "wrap_enqueue of plugin Broken failed and is ignored: RuntimeError: after",
        "wrap_enqueue of plugin Broken failed and is ignored: RuntimeError: before",
    ]
    assert sum("failed and was unsubscribed" in line for line in logged) == 1


async def test_a_plugin_wraps_only_the_runs_that_it_wants(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    class Chooses(Diary):
        def wants_run(self, job: ClaimedJob) -> bool:
            locale.set(f"prepared {job.task}")
            return job.task == "wanted"

    class Fails(Diary):
        def wants_run(self, job: ClaimedJob) -> bool:
            raise LookupError("nothing here")

    chooses, fails, always = Chooses(), Fails("second "), Diary("third ")
    alone = App(dsn, plugins=[chooses], name="alone")
    app = App(dsn, plugins=[chooses, fails, always], name="several")

    @alone.task
    async def by_itself() -> str:
        return locale.get()

    @app.task
    async def wanted() -> None: ...

    @app.task
    async def unwanted() -> None: ...

    async with alone, Worker(alone):
        job = await by_itself.aenqueue()
        assert await job.aresult(timeout="20s") == "prepared by_itself"
    async with app, Worker(app):
        for task in (wanted, unwanted):
            await (await task.aenqueue()).aresult(timeout="20s")
    assert [line for line in chooses.lines if "jobs" in line] == ["wanted succeeded, 1 jobs"]
    for other in (fails, always):
        lines = [line for line in other.lines if "jobs" in line]
        assert lines == [f"{other.name}wanted succeeded, 1 jobs", f"{other.name}unwanted succeeded, 1 jobs"]
    assert "wants_run" in caplog.text
    assert "LookupError" in caplog.text


async def test_a_config_error_of_a_plugin_stops_the_start(dsn: str) -> None:
    diary = Diary()

    class Refuses(Plugin):
        async def start_worker(self, worker: Worker) -> None:
            raise ConfigError("port 80 is taken")

    app = App(dsn, plugins=[diary, Refuses()])

    @app.task
    async def nothing() -> None: ...

    async with app:
        with pytest.raises(ConfigError, match="port 80 is taken"):
            await Worker(app).run()
    assert diary.lines == ["app starts", "worker starts", "worker stops", "app stops"]


def test_a_producer_starts_its_plugins_with_the_first_enqueue(dsn: str) -> None:
    diary = Diary()
    app = App(dsn, plugins=[diary])

    @app.task
    def nothing() -> None: ...

    nothing.enqueue()
    app.close()
    assert diary.lines == ["app starts", "enqueued 1 of nothing: 1 ids", "app stops"]


def test_a_plugin_may_enqueue_as_it_starts(dsn: str) -> None:
    class Eager(Plugin):
        def start_app(self, app: Any) -> None:
            app.tasks["nothing"].enqueue()

    app = App(dsn, plugins=[Eager()])

    @app.task(name="nothing")
    def nothing() -> None: ...

    with app:
        assert app.count_jobs(task="nothing") == 1


@pytest.mark.parametrize("wrong", [Plugin(), [Plugin], [object()], 7, [Diary, Diary()]])
def test_wrong_plugins_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="plugin"):
        App("postgresql://nowhere/", plugins=wrong)


async def test_a_plugin_that_is_added_to_a_started_app_is_started_and_stopped(dsn: str) -> None:
    app = App(dsn)
    diary = Diary()

    class Refuses(Plugin):
        def start_app(self, app: App) -> None:
            raise ConfigError("port 80 is taken")

    async with app:
        app.plugins.add(diary, app)
        assert diary.lines == ["app starts"]
        with pytest.raises(ConfigError, match="port 80 is taken"):
            app.plugins.add(Refuses(), app)
        assert app.plugins.all == (diary,)
    assert diary.lines == ["app starts", "app stops"]


async def test_a_worker_wraps_its_runs_with_the_plugins_that_it_started_with(dsn: str) -> None:
    first, late = Diary("first "), Diary("late ")
    app = App(dsn, plugins=[first])

    @app.task
    async def single() -> None: ...

    @app.task(batch=2)
    async def batch(ns: list[int]) -> list[int]:
        return ns

    async with app:
        async with Worker(app):
            app.plugins.add(late, app)
            await (await single.aenqueue()).aresult(timeout="20s")
            await (await batch.aenqueue(1)).aresult(timeout="20s")
        assert [line for line in first.lines if "succeeded" in line] == [
            "first single succeeded, 1 jobs",
            "first batch succeeded, 1 jobs",
        ]
        assert not [line for line in late.lines if "succeeded" in line]
        async with Worker(app):
            await (await batch.aenqueue(1)).aresult(timeout="20s")
        assert [line for line in late.lines if "succeeded" in line] == ["late batch succeeded, 1 jobs"]


async def test_plugins_stop_before_the_connections_are_closed_also_if_the_app_does_not_start(dsn: str) -> None:
    class Asks(Diary):
        def stop_app(self, app: App) -> None:
            self.lines.append(f"{app.count_jobs()} jobs")

    for asks in (Asks(), Asks()):
        async with App(dsn, plugins=[asks]):
            pass
        assert asks.lines == ["app starts", "0 jobs"]
    diary = Diary()
    nowhere = App("postgresql://postgres@127.0.0.1:1/db", plugins=[diary], call_timeout="1s")
    with pytest.raises(DatabaseError):
        nowhere.__enter__()
    with pytest.raises(DatabaseError):
        await nowhere.__aenter__()
    assert diary.lines == ["app starts", "app stops"] * 2


def test_a_plugin_that_equals_another_one_hears_of_events(dsn: str) -> None:
    class Equal(Diary):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        __hash__ = None  # pyright: ignore[reportAssignmentType]

    one, other = Equal(), Equal()
    app = App(dsn, plugins=[one])
    app.plugins.add(other, app)

    @app.task
    async def work() -> None: ...

    with app:
        work.enqueue()
    assert len(one.events) == len(other.events) > 0


def test_an_interrupted_close_lets_the_next_use_start_the_plugins(dsn: str) -> None:
    class Interrupted(Diary):
        def stop_app(self, app: App) -> None:
            super().stop_app(app)
            if self.lines.count("app stops") == 1:
                raise KeyboardInterrupt

    diary, interrupted = Diary(), Interrupted()
    app = App(dsn, plugins=[diary, interrupted])
    with pytest.raises(KeyboardInterrupt), app:
        pass
    with app:
        pass
    assert interrupted.lines == ["app starts", "app stops"] * 2
    assert diary.lines == ["app starts", "app starts", "app stops"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_of_a_process_that_closes_its_app_can_close_it_too(app: App) -> None:
    stopping, go_on = threading.Event(), threading.Event()

    class Slow(Plugin):
        def stop_app(self, app: App) -> None:
            stopping.set()
            assert go_on.wait(30)

    app.plugins.add(Slow(), app)
    app.plugins.start_app(app)
    closer = threading.Thread(target=app.close)
    closer.start()
    assert stopping.wait(10)
    pid = os.fork()
    if pid == 0:
        faulthandler.dump_traceback_later(10, exit=True)
        app.close()
        os._exit(0)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        go_on.set()
        closer.join()
