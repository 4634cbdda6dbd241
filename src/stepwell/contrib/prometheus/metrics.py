"""The metrics: their names, texts and labels, made from counts, the status of workers, and gauges of the database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib.metadata import version
from typing import Protocol
from weakref import WeakValueDictionary

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from stepwell.contrib.prometheus.run_counts import Histogram, RunCounts, summed
from stepwell.errors import ConfigError
from stepwell.worker.gauges import DatabaseGauge
from stepwell.worker.status import WorkerStatus

_TOTALS = {
    "rescued": "Jobs that this process rescued from dead workers.",
    "outcomes_refused": "Outcomes that came too late: another worker held the job.",
    "leases_lost": "Leases that this process lost.",
    "loop_blocked": "Times that a job blocked the event loop.",
}


class Source(Protocol):
    """The metrics of one app. They are read anew for each scrape."""

    def counts(self) -> RunCounts: ...
    def statuses(self) -> list[WorkerStatus]: ...
    def database_gauges(self) -> list[DatabaseGauge]: ...


class WorkerMetrics(Collector):
    """The metrics of the apps of one registry, as the registry wants them: a page must not have a series twice, so
    their numbers are added up."""

    def __init__(self, source: Source) -> None:
        self._sources = [source]

    def add(self, source: Source) -> None:
        """Add the numbers of another app."""
        self._sources = [*self._sources, source]

    def describe(self) -> list[Metric]:
        """One that is always there. By its name, the registry refuses to have these metrics twice."""
        return [_worker_info()]

    def collect(self) -> Iterator[Metric]:
        """Make all metrics, as they are now."""
        sources = self._sources
        counts = summed([source.counts() for source in sources])
        jobs = CounterMetricFamily(
            "stepwell_jobs", "Runs of jobs, by how they ended.", labels=["task", "queue", "outcome"]
        )
        for labels, count in sorted(counts.ended.items()):
            jobs.add_metric(list(labels), count)
        yield jobs
        enqueued = CounterMetricFamily(
            "stepwell_enqueued", "Jobs that this process enqueued.", labels=["task", "queue"]
        )
        for pair, count in sorted(counts.enqueued.items()):
            enqueued.add_metric(list(pair), count)
        yield enqueued
        for name, text, found in (
            ("stepwell_run_seconds", "How long runs took.", counts.run),
            ("stepwell_wait_seconds", "How long jobs were due before they started.", counts.wait),
        ):
            family = HistogramMetricFamily(name, text, labels=["task", "queue"])
            for pair, histogram in sorted(found.items()):
                family.add_metric(list(pair), histogram.buckets(), histogram.sum)
            yield family
        yield _one("stepwell_claim_jobs", "Jobs per claim.", counts.claims)
        yield _one("stepwell_flush_jobs", "Outcomes per flush.", counts.flushes)
        yield _one("stepwell_flush_seconds", "How long flushes of outcomes took.", counts.flush_seconds)
        for name, text in _TOTALS.items():
            yield CounterMetricFamily(f"stepwell_{name}", text, value=counts.totals[name])
        yield from _of_workers([status for source in sources for status in source.statuses()])
        yield from _of_database([gauge for source in sources for gauge in source.database_gauges()])


# A registry keeps its metrics, and they keep it: a strong reference from here would keep both for ever.
_by_registry: WeakValueDictionary[int, WorkerMetrics] = WeakValueDictionary()
_registering = threading.Lock()


def register(registry: CollectorRegistry, source: Source) -> None:
    """Show the metrics of an app in a registry, together with those of other apps that it has."""
    with _registering:
        metrics = WorkerMetrics(source)
        try:
            registry.register(metrics)
        except ValueError as error:
            known = _by_registry.get(id(registry))
            if known is None:
                raise ConfigError(f"registry= has metrics of others with names of Stepwell's: {error}") from None
            known.add(source)
        else:
            _by_registry[id(registry)] = metrics


def _one(name: str, text: str, histogram: Histogram) -> HistogramMetricFamily:
    return HistogramMetricFamily(name, text, histogram.buckets(), histogram.sum)


def _worker_info() -> Metric:
    info = GaugeMetricFamily("stepwell_worker_info", "The version of the workers.", labels=["version"])
    info.add_metric([version("stepwell")], 1)
    return info


def _of_workers(statuses: list[WorkerStatus]) -> Iterator[Metric]:
    """The workers of this process together. Before they are registered there is nothing to say but that."""
    yield _worker_info()
    registered = sum(status.worker_id is not None for status in statuses)
    yield GaugeMetricFamily("stepwell_registered", "Workers of this process that hold a lease.", registered)
    if not statuses:
        return
    slots = sum(status.slots for status in statuses)
    yield GaugeMetricFamily("stepwell_slots", "Room for running jobs.", slots)
    running = sum(status.running for status in statuses)
    yield GaugeMetricFamily("stepwell_running_jobs", "Jobs that run.", running)
    unstarted = sum(status.unstarted for status in statuses)
    yield GaugeMetricFamily("stepwell_unstarted_jobs", "Claimed jobs that wait for a slot.", unstarted)
    unwritten = sum(status.unwritten for status in statuses)
    yield GaugeMetricFamily("stepwell_unwritten_outcomes", "Outcomes that are not yet written.", unwritten)
    left = min(status.lease_left for status in statuses)
    yield GaugeMetricFamily("stepwell_lease_seconds", "How long the lease is valid if it is not renewed.", left)
    hears = all(status.hears for status in statuses)
    yield GaugeMetricFamily("stepwell_listener_up", "Whether notifications arrive.", hears)
    leads = any(status.leads for status in statuses)
    yield GaugeMetricFamily("stepwell_leader", "Whether a worker of this process leads.", leads)


def _of_database(gauges: list[DatabaseGauge]) -> Iterator[Metric]:
    if not gauges:
        return
    depth = GaugeMetricFamily("stepwell_queue_depth", "Ready jobs, at most 10000.", labels=["queue"])
    oldest = GaugeMetricFamily("stepwell_queue_oldest_seconds", "The age of the oldest ready job.", labels=["queue"])
    found: dict[tuple[str, str], float] = {}
    for name, queue, value in gauges:
        # There are several only if apps of this process are on several databases.
        known = found.get((name, queue or ""), 0.0)
        found[name, queue or ""] = max(known, value) if name == "oldest" else known + value
    for (name, queue), value in found.items():
        if name == "workers":
            yield GaugeMetricFamily("stepwell_workers", "Live workers of the database.", value)
        elif name == "ready":
            depth.add_metric([queue], value)
        elif name == "oldest":
            oldest.add_metric([queue], value)
    yield depth
    yield oldest
