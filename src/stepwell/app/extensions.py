"""The calls of `App` that let other code take part: resources, middleware, and hooks for telemetry events."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from stepwell.errors import ConfigError
from stepwell.jobs.task import Task
from stepwell.plugins.event_hooks import EventHooks
from stepwell.plugins.loaded import LoadedPlugins
from stepwell.plugins.plugin import MiddlewarePlugin
from stepwell.plugins.run import Run
from stepwell.resources.declared import Resources
from stepwell.telemetry.bus import EventBus, Telemetry

Make = TypeVar("Make", bound=Callable[[], object])
Middleware = TypeVar("Middleware", bound=Callable[[Run, Callable[[], Awaitable[None]]], Awaitable[None]])
Event = TypeVar("Event", bound=Telemetry)


class AppExtensions:
    """The part of `App` that registers resources, middleware and hooks."""

    plugins: LoadedPlugins
    events: EventBus
    resources: Resources
    _event_hooks: EventHooks | None = None

    def resource(self, fn: Make, /) -> Make:
        """Register a function that makes what handlers share in a worker process: a pool, a client, a model. It is a
        generator, plain or async, that yields the resource once; or a function that returns it, or a context manager
        for it. Its return annotation says the type, such as `AsyncIterator[Client]`.

        Each worker opens its resources in order before its first job, and closes them in reverse order after its last.
        If one fails to open, the worker does not start. Handlers get it by `ctx.resource(Client)`, or by a parameter
        `client: Client = Injected`. A process of a task with `process=True` opens plain ones itself, when it first
        needs them.
        """
        self.resources.add(_function("app.resource", fn))
        return fn

    def middleware(self, fn: Middleware, /) -> Middleware:
        """Register an `async def` that is called around every run of a job or batch: `async def timed(run, call)`. It
        awaits `call()` once, which runs the handler and raises the exception of a run that failed; `run.outcome` says
        how other runs ended: see `Plugin.wrap_run`. The first one is the outermost. A worker uses those that were
        registered before it started.
        """
        if not inspect.iscoroutinefunction(_function("app.middleware", fn)):
            raise ConfigError(f"@app.middleware: {fn!r} must be an 'async def' that takes (run, call)")
        self.plugins.add(MiddlewarePlugin(fn), self)
        return fn

    def on_event(self, *kinds: type[Event]) -> Callable[[Callable[[Event], object]], Callable[[Event], object]]:
        """Register a function, plain or `async def`, that is called with each telemetry event of these classes, or of
        classes derived from them: `@app.on_event(AttemptFailed)`.

        It may block and it may fail: failures are logged, and jobs do not wait for it. Plain functions are called one
        after the other in one thread, which they share, async ones on the worker's event loop. If they are so slow that
        10,000 events wait for them, further ones are dropped, for all of them.
        """
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, Telemetry)):
                raise ConfigError(f"@app.on_event({kind!r}): give classes of events, such as AttemptFailed")
        if not kinds:
            raise ConfigError("@app.on_event(...) takes the classes of events, such as AttemptFailed")

        def register(fn: Callable[[Event], object]) -> Callable[[Event], object]:
            if self._event_hooks is None:
                self._event_hooks = EventHooks(self.events)
                self.plugins.add(self._event_hooks, self)
            self._event_hooks.add(kinds, _function("app.on_event", fn))
            return fn

        return register


def _function(who: str, fn: Any) -> Any:
    if isinstance(fn, Task):
        raise ConfigError(f"@{who} takes a function, and {fn.name!r} is a task: write one around it")
    if not callable(fn) or isinstance(fn, type):
        raise ConfigError(f"@{who} takes a function, not {fn!r}")
    return fn
