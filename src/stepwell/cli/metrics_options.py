"""The options of `stepwell worker` for metrics and health checks."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from stepwell.app import App
from stepwell.supervisor.supervisor import ProcessObserver

MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        help="Serve /metrics for Prometheus, and /healthz and /readyz for probes, on this port; 0: any free port. "
        "With --processes, for all of them.",
        min=0,
        max=65535,
        show_default=False,
    ),
]
MetricsHostOption = Annotated[
    str, typer.Option("--metrics-host", metavar="ADDRESS", help="The address to serve metrics on.")
]
MetricsSocketOption = Annotated[
    str | None,
    typer.Option("--metrics-socket", hidden=True, help="Where the supervisor asks for metrics. Set by a supervisor."),
]


def serve_metrics(app: App, port: int | None, host: str, unix_socket: str | None) -> None:
    """Have the workers of the app serve metrics, by its own plugin if it has one."""
    if port is None and unix_socket is None:
        return
    from stepwell.contrib.prometheus import Prometheus

    plugin = next((known for known in app.plugins.all if isinstance(known, Prometheus)), None)
    if plugin is None:
        plugin = Prometheus()
        app.plugins.add(plugin, app)
    plugin.serve_on(port, host, None if unix_socket is None else Path(unix_socket))


@contextmanager
def observe_processes(processes: int, port: int | None, host: str) -> Generator[ProcessObserver | None]:
    """Serve the metrics of a supervisor's processes, if a port is given."""
    if port is None:
        yield None
        return
    from stepwell.contrib.prometheus.processes import ProcessMetrics

    with ProcessMetrics(processes, host, port) as metrics:
        yield metrics
