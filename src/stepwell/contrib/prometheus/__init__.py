"""Metrics for Prometheus, and health checks: `App(plugins=[Prometheus(port=9464)])` or `--metrics-port 9464`.

Workers serve `/metrics`, `/healthz` (the process is alive; asks no database) and `/readyz` (it holds a lease, and its
database answers). Numbers about the whole database come from the worker that leads, and from no other.

`plugin` is the plugin. It counts telemetry events in `run_counts`, `metrics` makes metrics of the counts, and `server`
serves them over HTTP. `processes` gathers the metrics of the processes of a supervisor.
"""

from stepwell.errors import ConfigError
from stepwell.errors.text import how_to_install

try:
    import prometheus_client  # noqa: F401  # pyright: ignore[reportUnusedImport]
except ImportError:
    raise ConfigError(f"metrics need prometheus-client: {how_to_install('prometheus')}") from None

from stepwell.contrib.prometheus.plugin import Prometheus

__all__ = ["Prometheus"]
