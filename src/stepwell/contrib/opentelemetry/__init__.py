"""Traces and metrics by OpenTelemetry: `App(plugins=[OpenTelemetry()])`.

`plugin` is the plugin. `origins` reads where a job came from. `run_spans` makes the spans of runs, of which there may
be tens of thousands a second.
"""

from stepwell.errors import ConfigError

try:
    from stepwell.contrib.opentelemetry.plugin import OpenTelemetry
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("opentelemetry"):
        raise
    raise ConfigError("traces need OpenTelemetry: pip install 'stepwell[opentelemetry]'") from None

__all__ = ["OpenTelemetry"]
