"""The plugins that wrap the runs of one worker: those that its app had when it started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from stepwell.plugins.hooks import name_of, overrides, report_failure
from stepwell.plugins.plugin import Plugin
from stepwell.plugins.run import Run
from stepwell.telemetry.bus import EventBus
from stepwell.values.job import ClaimedJob


class RunPlugins:
    """Which plugins wrap a run, and how they are called. `wraps_run` tells hot paths whether there are any. Plugins
    that are added to the app later are not among them."""

    def __init__(self, plugins: Sequence[Plugin], events: EventBus) -> None:
        self._events = events
        self._plugins = tuple(plugin for plugin in plugins if overrides(plugin, "wrap_run"))
        self._asks_run = any(overrides(plugin, "wants_run") for plugin in self._plugins)
        self.wraps_run = bool(self._plugins)

    def wanting(self, job: ClaimedJob) -> Sequence[Plugin]:
        """The plugins whose `wrap_run` is to be called for a run of this job. Called once for each run, in its context:
        a plugin may prepare the run."""
        if not self._asks_run:
            return self._plugins
        wanting: tuple[Plugin, ...] = ()
        for plugin in self._plugins:
            try:
                if not plugin.wants_run(job):
                    continue
            except Exception as error:
                report_failure(self._events, (plugin,), "wants_run", error)
            wanting = (*wanting, plugin)
        return wanting

    def around_run(
        self, run: Run, call: Callable[[], Awaitable[None]], wanting: Sequence[Plugin] | None = None
    ) -> Awaitable[None]:
        """Return an awaitable of `call` inside `wrap_run` of these plugins, or of all."""
        first, *others = self._plugins if wanting is None else wanting
        for plugin in reversed(others):
            call = partial(plugin.wrap_run, run, call)
        return first.wrap_run(run, call)

    @property
    def names(self) -> str:
        """The plugins, for a message."""
        return " or ".join(map(name_of, self._plugins))

    def log_ignored(self, hook: str, error: BaseException) -> None:
        """Log what the plugins did wrong after the outcome was written."""
        report_failure(self._events, self._plugins, hook, error)
