"""Traces and metrics by OpenTelemetry: `App(plugins=[OpenTelemetry()])`.

`plugin` is the plugin. `origins` reads where a job came from. `run_spans` makes the spans of runs, of which there may
be tens of thousands a second, and `failed_span` marks those that failed. `instruments` has the counters and histograms,
`gauges` what a meter reads by itself.
"""

from stepwell.errors import ConfigError
from stepwell.errors.text import how_to_install

try:
    from stepwell.contrib.opentelemetry.plugin import OpenTelemetry
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("opentelemetry"):
        raise
    raise ConfigError(f"traces need OpenTelemetry: {how_to_install('opentelemetry')}") from None

__all__ = ["OpenTelemetry"]
