"""The plugins of one app: which hooks they have, and how each is called."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import Any

from stepwell.errors import ConfigError
from stepwell.plugins.enqueue import Enqueue
from stepwell.plugins.hooks import overrides, report_failure
from stepwell.plugins.plugin import Plugin
from stepwell.plugins.run_plugins import RunPlugins
from stepwell.plugins.step import StepRun
from stepwell.telemetry.bus import EventBus
from stepwell.values.headers import HeadersTooLong, encode_headers

# A client that cannot be closed must not keep the worker from ending.
_STOP_PATIENCE = 10.0


class LoadedPlugins:
    """The plugins of an app. `wants_enqueue` and `wraps_step` tell hot paths whether there is anything to call."""

    def __init__(self, plugins: Iterable[Plugin], events: EventBus) -> None:
        self._events = events
        self._lock = threading.RLock()
        self._started: list[Plugin] = []
        self._process = os.getpid()
        self._is_starting = self._is_started = self._is_stopping = False
        self.all: tuple[Plugin, ...] = ()
        self._load(_checked(plugins))

    @property
    def wants_enqueue(self) -> bool:
        """Whether plugins have something to do when jobs are enqueued: they wrap the enqueue, or wait to be started."""
        return self.wraps_enqueue or (self._has_app_hooks and not self._is_started)

    def add(self, plugin: Plugin, app: Any) -> None:
        """Add a plugin to an app, and start it if the app is started. Workers that have started neither wrap their
        runs with it nor call its `start_worker`."""
        with self._lock:
            plugins = _checked((*self.all, plugin))
            if self._is_started:
                self._start(plugin, app)
            self._load(plugins)

    def _load(self, plugins: tuple[Plugin, ...]) -> None:
        known = set(map(id, self.all))
        new = [plugin for plugin in plugins if id(plugin) not in known]
        self.all = plugins
        self._enqueue = tuple(plugin for plugin in self.all if overrides(plugin, "wrap_enqueue"))
        self._step = tuple(plugin for plugin in self.all if overrides(plugin, "wrap_step"))
        self.wraps_step = bool(self._step)
        self.wraps_enqueue = bool(self._enqueue)
        self._has_app_hooks = any(
            overrides(plugin, "start_app") or overrides(plugin, "stop_app") for plugin in self.all
        )
        for plugin in new:
            if overrides(plugin, "on_event"):
                self._events.subscribe(plugin.on_event, plugin.wanted_events)

    def start_app(self, app: Any) -> None:
        """Call `start_app` of each plugin, unless the app is started already."""
        if self._is_started:
            return
        self._check_process()
        with self._lock:
            if self._is_started or self._is_starting:  # a plugin that enqueues as it starts comes here again
                return
            self._is_starting = True
            try:
                for plugin in self._each():
                    self._start(plugin, app)
                self._is_started = True
            except ConfigError:
                self._stop_started(app)
                raise
            finally:
                self._is_starting = False

    def _each(self) -> Iterator[Plugin]:
        """Each plugin, also those that are added meanwhile: a `start_app` may register hooks."""
        index = 0
        while index < len(self.all):
            yield self.all[index]
            index += 1

    def _start(self, plugin: Plugin, app: Any) -> None:
        try:
            plugin.start_app(app)
        except ConfigError:
            raise
        except Exception as error:
            self._failed(plugin, "start_app", error)
        else:
            self._started.append(plugin)

    def stop_app(self, app: Any) -> None:
        """Call `stop_app` of each plugin that was started, the last first. If they are being stopped already, return:
        the caller may be a function that a plugin waits for."""
        self._check_process()
        with self._lock:
            if self._is_stopping:
                return
            self._is_stopping = True
        try:
            self._stop_started(app)
        finally:
            # Also if Ctrl-C came meanwhile: the next use of the app starts all of them.
            self._started.clear()
            self._is_started = self._is_stopping = False

    def _check_process(self) -> None:
        if self._process != os.getpid():
            # The threads of the parent, which may have held the lock or stopped the plugins, do not run here.
            self._process = os.getpid()
            self._lock = threading.RLock()
            if self._is_starting or self._is_stopping:
                self._started.clear()
                self._is_starting = self._is_started = self._is_stopping = False

    def _stop_started(self, app: Any) -> None:
        while self._started:
            plugin = self._started.pop()
            try:
                plugin.stop_app(app)
            except Exception as error:
                self._failed(plugin, "stop_app", error)

    async def start_worker(self, worker: Any) -> list[Plugin]:
        """Call `start_worker` of each plugin, and return those to stop later."""
        started: list[Plugin] = []
        for plugin in self.all:
            try:
                await plugin.start_worker(worker)
            except ConfigError:
                await self.stop_worker(worker, started)
                raise
            except Exception as error:
                self._failed(plugin, "start_worker", error)
            else:
                started.append(plugin)
        return started

    async def stop_worker(self, worker: Any, started: list[Plugin]) -> None:
        """Call `stop_worker` of the plugins that were started, the last first, each even if others have failed."""
        cancelled: asyncio.CancelledError | None = None
        for plugin in reversed(started):
            try:
                async with asyncio.timeout(_STOP_PATIENCE):
                    await plugin.stop_worker(worker)
            except asyncio.CancelledError as error:
                cancelled = error  # call the others first
            except Exception as error:
                self._failed(plugin, "stop_worker", error)
        if cancelled is not None:
            raise cancelled

    def encoded_headers(self, enqueue: Enqueue, inherited: Mapping[str, str] = MappingProxyType({})) -> str | None:
        """The headers that plugins added, and those of a parent, as JSON; None: plugins added none. Headers that cannot
        be stored are logged and left out; if they are too long, the longest of them."""
        headers = {**inherited, **enqueue.headers} if enqueue.headers else {}
        while headers:
            try:
                return encode_headers(headers)
            except (ValueError, TypeError) as error:
                report_failure(self._events, self.all, "wrap_enqueue", error)
                if not isinstance(error, HeadersTooLong):
                    return None
            # Baggage may have any length. The trace, which is short, is kept.
            del headers[max(headers, key=lambda name: len(name) + len(headers[name]))]
        return None

    @contextmanager
    def wrapping_step(self, step: StepRun) -> Generator[None]:
        """The same as `enqueuing`, around the function of a step."""
        with self._entered(self._step, "wrap_step", step):
            yield

    @contextmanager
    def enqueuing(self, enqueue: Enqueue) -> Generator[None]:
        """Enter the context managers of all plugins, and leave them with the exception of the enqueue, if there is
        one. It is raised whatever they do."""
        with self._entered(self._enqueue, "wrap_enqueue", enqueue):
            yield

    @contextmanager
    def _entered(self, plugins: Sequence[Plugin], hook: str, given: object) -> Generator[None]:
        entered: list[tuple[Plugin, AbstractContextManager[object]]] = []
        for plugin in plugins:
            try:
                manager = getattr(plugin, hook)(given)
                manager.__enter__()
            except Exception as error:
                self._failed(plugin, hook, error)
            else:
                entered.append((plugin, manager))
        raised: BaseException | None = None
        try:
            yield
        except BaseException as error:
            raised = error
            raise
        finally:
            kind = None if raised is None else type(raised)
            for plugin, manager in reversed(entered):
                try:
                    manager.__exit__(kind, raised, None if raised is None else raised.__traceback__)
                except Exception as error:
                    # A generator raises what was thrown into it.
                    if error is not raised:
                        self._failed(plugin, hook, error)

    def for_runs(self) -> RunPlugins:
        """The plugins that wrap runs now, for a worker that starts."""
        return RunPlugins(self.all, self._events)

    def _failed(self, plugin: Plugin, hook: str, error: BaseException) -> None:
        report_failure(self._events, (plugin,), hook, error)


def _checked(plugins: Iterable[Plugin]) -> tuple[Plugin, ...]:
    if isinstance(plugins, Plugin):
        raise ConfigError(f"plugins={plugins!r}: give a list, plugins=[...]")
    try:
        found = tuple(plugins)
    except TypeError:
        raise ConfigError(f"plugins={plugins!r}: give a list of plugins") from None
    for plugin in found:
        if not isinstance(plugin, Plugin):
            made = ": call it, to make one" if isinstance(plugin, type) else ""
            raise ConfigError(f"plugins has {plugin!r}, which is not a stepwell.Plugin{made}")
    if len(set(map(id, found))) < len(found):
        raise ConfigError("plugins has the same plugin twice")
    return found
