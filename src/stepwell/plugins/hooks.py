"""Which hooks a plugin has, and what happens when one fails."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.errors.text import error_line_of, format_traceback
from stepwell.plugins.plugin import MiddlewarePlugin, Plugin
from stepwell.telemetry.bus import EventBus
from stepwell.telemetry.plugins import PluginFailed


def overrides(plugin: Plugin, hook: str) -> bool:
    return getattr(type(plugin), hook) is not getattr(Plugin, hook) or hook in vars(plugin)


def name_of(plugin: Plugin) -> str:
    """The plugin, for a message: its class, or the user's function."""
    if isinstance(plugin, MiddlewarePlugin):
        return f"@app.middleware {getattr(plugin.fn, '__qualname__', plugin.fn)}"
    return type(plugin).__qualname__


def report_failure(events: EventBus, plugins: Sequence[Plugin], hook: str, error: BaseException) -> None:
    """Report that a hook of one of these plugins failed, and was ignored."""
    names = ", ".join(map(name_of, plugins))
    events.emit(PluginFailed(names, hook, error_line_of(error), format_traceback(error, error.__traceback__)), error)
