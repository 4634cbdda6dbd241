"""Gauges: what the workers of this process are doing, and what the whole database has. A meter asks for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

from stepwell.worker.gauges import DatabaseGauges, statuses_of
from stepwell.worker.status import WorkerStatus

# By the names in `stepwell.gauges`. A Prometheus exporter makes the names of `stepwell.contrib.prometheus` from these.
_OF_DATABASE = {
    "ready": ("stepwell.queue.depth", "{job}", "Ready jobs, at most 10000."),
    "oldest": ("stepwell.queue.oldest", "s", "The age of the oldest ready job."),
    "workers": ("stepwell.workers", "{worker}", "Live workers of the database."),
}
_OF_WORKERS: tuple[tuple[str, str, str, Callable[[WorkerStatus], int]], ...] = (
    ("stepwell.registered", "{worker}", "Workers that hold a lease.", lambda status: status.worker_id is not None),
    ("stepwell.slots", "{slot}", "Room for running jobs.", lambda status: status.slots),
    ("stepwell.running_jobs", "{job}", "Jobs that run.", lambda status: status.running),
    ("stepwell.unstarted_jobs", "{job}", "Claimed jobs that wait for a slot.", lambda status: status.unstarted),
    ("stepwell.unwritten_outcomes", "{outcome}", "Outcomes not yet written.", lambda status: status.unwritten),
)


class Gauges:
    """The gauges of a meter, for all apps of this process that report to it: a meter makes an instrument of a name only
    once. They have values while a worker runs in this process."""

    def __init__(self, meter: Meter) -> None:
        self._lock = threading.Lock()
        self._apps: dict[Any, tuple[DatabaseGauges, tuple[Any, ...]]] = {}
        """By app, the numbers of its database and its workers. It is replaced, never changed: any thread may read."""
        for key, (name, unit, text) in _OF_DATABASE.items():
            meter.create_observable_gauge(name, [self._of_database(key)], unit, text)
        for name, unit, text, number in _OF_WORKERS:
            meter.create_observable_gauge(name, [self._of_workers(number)], unit, text)

    def add(self, app: Any, worker: Any) -> None:
        with self._lock:
            database, workers = self._apps.get(app) or (DatabaseGauges(), ())
            self._apps = {**self._apps, app: (database, (*workers, worker))}

    def remove(self, app: Any, worker: Any) -> None:
        with self._lock:
            apps = dict(self._apps)
            database, workers = apps.pop(app)
            if left := tuple(known for known in workers if known is not worker):
                apps[app] = database, left
            self._apps = apps

    def _of_database(self, key: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for app, (database, workers) in self._apps.items():
                for name, queue, value in database.read(app, statuses_of(workers)):
                    if name == key:
                        yield Observation(value, None if queue is None else {"queue": queue})

        return observe

    def _of_workers(self, number: Callable[[WorkerStatus], int]) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            if statuses := statuses_of(worker for _, workers in self._apps.values() for worker in workers):
                yield Observation(sum(number(status) for status in statuses))

        return observe


_by_provider: WeakKeyDictionary[MeterProvider, Gauges] = WeakKeyDictionary()
_lock = threading.Lock()


def gauges_of(provider: MeterProvider) -> Gauges:
    with _lock:
        if provider not in _by_provider:
            _by_provider[provider] = Gauges(provider.get_meter("stepwell"))
        return _by_provider[provider]
