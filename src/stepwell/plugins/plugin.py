"""The base class of plugins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from stepwell.plugins.enqueue import Enqueue
from stepwell.plugins.run import Run
from stepwell.plugins.step import StepRun
from stepwell.telemetry.bus import Telemetry
from stepwell.values.job import ClaimedJob


class Plugin:
    """Extends an app: `App(plugins=[...])`. Override the methods that you need; the others cost nothing.

    If a method fails, that is logged and harms nothing, with two exceptions: an exception that `wrap_run` raises is the
    run's, and a `ConfigError` of `start_app` or `start_worker` is raised to whoever starts the app or the worker.
    """

    wanted_events: Sequence[type[Telemetry]] | None = None
    """The classes of events that `on_event` is called with, subclasses included; None: all. Events that nobody wants
    are not made, which matters for those that each job has."""

    def on_event(self, event: Telemetry) -> None:
        """Called with each telemetry event of the app and its workers, in whichever thread it happens. It must not
        block. If it fails, it is not called again."""

    def wrap_enqueue(self, enqueue: Enqueue) -> AbstractContextManager[object]:  # noqa: ARG002
        """Return a context manager that is entered before jobs are enqueued and left afterwards, with the exception if
        that failed. What it adds to `enqueue.headers` is stored with the jobs. It cannot stop the enqueue."""
        return nullcontext()

    async def wrap_run(self, run: Run, call: Callable[[], Awaitable[None]]) -> None:  # noqa: ARG002
        """Called for each run of a job or batch, in place of its handler: `await call()` once, which runs the handler
        and raises the exception of a run that failed. After a `Snooze`, a `Cancel` or a suspension it returns:
        `run.outcome` says how the run ended. The first plugin of the app is the outermost.

        If this raises another exception than `call` did, that is how the run ends: `Snooze`, `Cancel` and `Fail` mean
        what they mean in a handler. If it raises none, the run ends as its handler did. If a task with `transaction=`
        succeeds, that is committed when `call` returns, and an exception after it is only logged. The handler of an
        async task or thread sees the contextvars that are set here.
        """
        await call()

    def wants_run(self, job: ClaimedJob) -> bool:  # noqa: ARG002
        """Return whether `wrap_run` is to be called for a run of this job, which is about to start. A run that no
        plugin wants costs hardly more than without plugins. The handler sees the contextvars that are set here.
        Batches are always wanted. If this fails, that is logged, and the run is wanted."""
        return True

    def wrap_step(self, step: StepRun) -> AbstractContextManager[object]:  # noqa: ARG002
        """Return a context manager that is entered before the function of a step is called and left afterwards, with
        the exception if it failed. A step whose value is saved already is not called. The function sees the
        contextvars that are set here."""
        return nullcontext()

    def start_app(self, app: Any) -> None:
        """Called once with the `App`: when it is entered, its first worker starts or it enqueues its first job."""

    def stop_app(self, app: Any) -> None:
        """Called with the `App` when it is closed, if it was started. The app may be started again."""

    async def start_worker(self, worker: Any) -> None:
        """Called with each `Worker` of the app that starts, before it looks for its database."""

    async def stop_worker(self, worker: Any) -> None:
        """Called with each `Worker` that was started, after its last handler has ended. It is cancelled if it takes
        longer than ten seconds."""


class MiddlewarePlugin(Plugin):
    """A function of the user's as a plugin, as `@app.middleware` makes it."""

    def __init__(self, fn: Callable[[Run, Callable[[], Awaitable[None]]], Awaitable[None]]) -> None:
        self.fn = fn

    async def wrap_run(self, run: Run, call: Callable[[], Awaitable[None]]) -> None:
        await self.fn(run, call)
