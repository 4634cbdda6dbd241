"""Counters and histograms of enqueues and runs. The gauges, which a meter reads by itself, are in `gauges`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.metrics import Histogram, Meter

from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.jobs import RunsEnded

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)


class Instruments:
    """Metrics named messaging.* measure calls of this process, those named stepwell.* the outcomes that it wrote."""

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str, text: str) -> Histogram:
            return meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=_SECONDS)

        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Jobs that were enqueued.")
        self._sending = histogram("messaging.client.operation.duration", "How long enqueues took.")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", "Jobs that ran.")
        self._processing = histogram("messaging.process.duration", "How long runs took.")
        self._jobs = meter.create_counter("stepwell.jobs", "{job}", "Runs of jobs, by how they ended.")
        self._run = histogram("stepwell.run", "How long runs took.")
        self._wait = histogram("stepwell.wait", "How long jobs were due before they started.")

    def enqueued(self, jobs: int, seconds: float, attributes: Mapping[str, Any]) -> None:
        self._sending.record(seconds, attributes)
        if jobs:
            self._sent.add(jobs, attributes)

    def ran(self, jobs: int, seconds: float, attributes: Mapping[str, Any]) -> None:
        self._consumed.add(jobs, attributes)
        self._processing.record(seconds, attributes)

    def count_runs(self, event: Telemetry) -> None:
        """Count each job by the outcome that was written, as `stepwell.stats` and Prometheus do."""
        assert isinstance(event, RunsEnded)
        for task, queue, outcome, seconds, waited in event.runs:
            labels = {"task": task, "queue": queue}
            self._jobs.add(1, {**labels, "outcome": outcome})
            self._run.record(seconds, labels)
            if waited is not None:
                self._wait.record(waited, labels)
