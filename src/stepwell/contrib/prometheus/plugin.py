"""The plugin: it counts events, and answers the pages that the server serves while a worker runs."""

from __future__ import annotations

import asyncio
import concurrent.futures
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from stepwell.contrib.prometheus.metrics import register
from stepwell.contrib.prometheus.run_counts import EVENTS, RunCounts
from stepwell.contrib.prometheus.server import MetricsServer, Response
from stepwell.errors import ConfigError, StepwellError
from stepwell.plugins import Plugin
from stepwell.postgres import queries
from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.worker import MetricsServed
from stepwell.values.bounds import check_whole
from stepwell.worker.gauges import DatabaseGauge, DatabaseGauges, statuses_of
from stepwell.worker.status import WorkerStatus

_LOCAL = "127.0.0.1"
# How long the database may take to answer that it is there.
_WITHIN = 2.0
# How long a scrape waits for outcomes that the database has and the worker has not counted yet. It takes a moment,
# unless a job blocks the event loop or the database does not answer.
_COUNTED_WITHIN = 1.0


class Prometheus(Plugin):
    """Counts runs and serves the counts over HTTP, from the start of the first worker to the end of the last.

    `port` 0 is any free port, and None serves nothing: `registry` has the metrics for a server of your own. It is a new
    registry unless given; a given one is served whole, with your own metrics. Apps with the same registry are added up.
    `host` is the address to listen on. The pages have no password: keep it on loopback, or behind a firewall.
    """

    wanted_events = EVENTS

    def __init__(
        self, port: int | None = None, *, host: str = _LOCAL, registry: CollectorRegistry | None = None
    ) -> None:
        self._port = None if port is None else check_whole(port, "port", 0, 65535)
        if not isinstance(host, str) or not host:
            raise ConfigError(f"host is {host!r}: give the address to listen on, such as {_LOCAL!r}")
        self._host = host
        self._socket: Path | None = None
        self.registry = registry if registry is not None else CollectorRegistry()
        """The registry that has the metrics."""
        self._counts = RunCounts()
        self._app: Any = None
        self._workers: dict[Any, asyncio.AbstractEventLoop] = {}
        self._server: MetricsServer | None = None
        self._gauges = DatabaseGauges()
        register(self.registry, self)

    @property
    def url(self) -> str:
        """The address of the metrics, while a worker runs."""
        if self._server is None or not self._server.url:
            raise ConfigError("metrics are served only while a worker of the app runs, and only with port=")
        return self._server.url

    def serve_on(self, port: int | None, host: str, unix_socket: Path | None) -> None:
        """Serve elsewhere than the app says: the command line, or a supervisor, wants it so."""
        self._port, self._host, self._socket = port, host, unix_socket

    def on_event(self, event: Telemetry) -> None:
        """Count what happened."""
        self._counts.add(event)

    def start_app(self, app: Any) -> None:
        """Remember the app, whose database is asked for depths."""
        if self._app is not None and self._app is not app:
            raise ConfigError("this Prometheus() is the plugin of another app: make one for each app")
        self._app = app

    async def start_worker(self, worker: Any) -> None:
        """Begin to serve, with the first worker."""
        if self._server is None and (self._port is not None or self._socket is not None):
            pages = {"/metrics": self._metrics_page, "/healthz": self._alive_page, "/readyz": self._ready_page}
            self._server = MetricsServer(pages, self._host, self._port or 0, self._socket)
            if self._socket is None:
                self._app.events.emit(MetricsServed(self._server.url))
        self._workers = {**self._workers, worker: asyncio.get_running_loop()}

    async def stop_worker(self, worker: Any) -> None:
        """Stop serving, with the last worker."""
        self._workers = {known: loop for known, loop in self._workers.items() if known is not worker}
        if not self._workers and self._server is not None:
            self._server.close()
            self._server = None

    def statuses(self) -> list[WorkerStatus]:
        """What the workers of this process are doing."""
        return statuses_of(self._workers)

    def counts(self) -> RunCounts:
        """What was counted. It includes each run whose result somebody has, unless this is called on an event loop,
        which must not be blocked."""
        if self._workers and not _is_on_loop():
            self._await_counted()
        return self._counts.snapshot()

    def _await_counted(self) -> None:
        waited: list[concurrent.futures.Future[None]] = []
        for worker, loop in self._workers.items():
            counted = worker.outcomes_counted()
            try:
                waited.append(asyncio.run_coroutine_threadsafe(counted, loop))
            except RuntimeError:  # the loop is closed: the worker has ended
                counted.close()
        for late in concurrent.futures.wait(waited, _COUNTED_WITHIN).not_done:
            late.cancel()

    def database_gauges(self) -> list[DatabaseGauge]:
        """Numbers about the whole database; none unless a worker of this process leads."""
        return self._gauges.read(self._app, self.statuses())

    def _metrics_page(self, accept: str) -> Response:
        encode, content_type = choose_encoder(accept)
        return Response(200, encode(self.registry), content_type)

    def _alive_page(self, _: str) -> Response:
        return Response(200, b"ok\n")

    def _ready_page(self, _: str) -> Response:
        statuses = self.statuses()
        if not statuses:
            return Response(503, b"the worker waits for its database\n")
        if any(status.stopping for status in statuses):
            return Response(503, b"the worker is stopping\n")
        if any(status.worker_id is None for status in statuses):
            return Response(503, b"the worker holds no lease\n")
        try:
            self._app.database.fetch(queries.reads.clock(), _WITHIN)
        except StepwellError as error:
            return Response(503, f"the database does not answer: {error}\n".encode(errors="replace"))
        return Response(200, b"ok\n")


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
