"""The metrics and health of several worker processes on one port: the supervisor asks each of them, when it is asked.

Each process serves its own on a Unix socket in a directory that only this user may enter. Its metrics get the label
`process`, which is the number of its seat: a process that is replaced is to Prometheus one whose counters start anew.
"""

from __future__ import annotations

import http.client
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from stepwell.contrib.prometheus.server import MetricsServer, Response
from stepwell.telemetry.bus import log
from stepwell.telemetry.worker import MetricsServed

# Longer than a process waits for its own counts and for the database.
_WITHIN = 4.0


class ProcessMetrics:
    """Serves the metrics of a supervisor's processes. Use it as a context manager."""

    def __init__(self, processes: int, host: str, port: int) -> None:
        self._numbers = range(1, processes + 1)
        self._host = host
        self._port = port
        self._starts: Counter[int] = Counter()

    def __enter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix="stepwell-"))
        self._asking = ThreadPoolExecutor(min(16, len(self._numbers)), thread_name_prefix="stepwell-metrics")
        self._registry = CollectorRegistry()
        self._registry.register(_Merged(self))
        pages = {"/metrics": self._metrics_page, "/healthz": self._alive_page, "/readyz": self._ready_page}
        try:
            self._server = MetricsServer(pages, self._host, self._port)
        except BaseException:
            self._clear()
            raise
        log(MetricsServed(self._server.url))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.close()
        self._clear()

    def _clear(self) -> None:
        self._asking.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self._directory, ignore_errors=True)

    def arguments(self, number: int) -> Sequence[str]:
        """Tell a process where to serve its metrics."""
        return [f"--metrics-socket={self._socket(number)}"]

    def started(self, number: int) -> None:
        """Count the starts of a seat."""
        self._starts[number] += 1

    def _socket(self, number: int) -> Path:
        return self._directory / f"{number}.sock"

    def collect(self) -> Iterator[Metric]:
        """Ask every process, and yield what they answer, with the number of each as a label."""
        merged: dict[str, Metric] = {}
        answers = self._ask_all("/metrics")
        for number, answer in answers.items():
            if answer is None or answer.status != 200:
                continue
            for family in text_string_to_metric_families(answer.body.decode()):
                one = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    labels = {**sample.labels, "process": str(number)}
                    one.samples.append(sample._replace(labels=labels))
        yield from merged.values()
        alive = sum(answer is not None for answer in answers.values())
        yield GaugeMetricFamily("stepwell_processes", "Worker processes that there should be.", len(self._numbers))
        yield GaugeMetricFamily("stepwell_processes_up", "Worker processes that answer.", alive)
        starts = CounterMetricFamily("stepwell_process_starts", "Worker processes started.", labels=["process"])
        for number in self._numbers:
            starts.add_metric([str(number)], self._starts[number])
        yield starts

    def _metrics_page(self, accept: str) -> Response:
        encode, content_type = choose_encoder(accept)
        return Response(200, encode(self._registry), content_type)

    def _alive_page(self, _: str) -> Response:
        return Response(200, b"ok\n")

    def _ready_page(self, _: str) -> Response:
        """Ready if one process is: it can run jobs."""
        answers = self._ask_all("/readyz")
        lines = [
            f"process {number}: {'no answer' if answer is None else answer.body.decode(errors='replace').strip()}\n"
            for number, answer in answers.items()
        ]
        ready = any(answer is not None and answer.status == 200 for answer in answers.values())
        return Response(200 if ready else 503, "".join(lines).encode())

    def _ask_all(self, path: str) -> dict[int, Response | None]:
        asked = {number: self._asking.submit(self._ask, number, path) for number in self._numbers}
        return {number: answer.result() for number, answer in asked.items()}

    def _ask(self, number: int, path: str) -> Response | None:
        connection = _UnixConnection(self._socket(number))
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return Response(answer.status, answer.read())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_WITHIN)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_WITHIN)
        self.sock.connect(str(self._path))


class _Merged(Collector):
    def __init__(self, metrics: ProcessMetrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        """None: they are those of the processes."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Ask the processes."""
        return self._metrics.collect()
