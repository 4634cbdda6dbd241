"""Events of plugins."""

from __future__ import annotations

import logging

from stepwell.telemetry.bus import Telemetry


class PluginFailed(Telemetry, frozen=True):
    """A hook of a plugin raised an exception, which was ignored."""

    level = logging.ERROR
    plugin: str
    hook: str
    error: str
    traceback: str | None
    line = "{0.hook} of plugin {0.plugin} failed and is ignored: {0.error}"
