"""Gauges: what the workers of this process are doing, and what the whole database has. A meter asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.metrics import CallbackOptions, Meter, Observation

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
    """The gauges of an app, as a meter wants them. They have values while a worker runs in this process."""

    def __init__(self, app: Any, meter: Meter) -> None:
        self._app = app
        self._workers: tuple[Any, ...] = ()
        self._database = DatabaseGauges()
        for key, (name, unit, text) in _OF_DATABASE.items():
            meter.create_observable_gauge(name, [self._of_database(key)], unit, text)
        for name, unit, text, number in _OF_WORKERS:
            meter.create_observable_gauge(name, [self._of_workers(number)], unit, text)

    def add(self, worker: Any) -> None:
        self._workers = (*self._workers, worker)

    def remove(self, worker: Any) -> None:
        self._workers = tuple(known for known in self._workers if known is not worker)

    def _of_database(self, key: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for name, queue, value in self._database.read(self._app, statuses_of(self._workers)):
                if name == key:
                    yield Observation(value, None if queue is None else {"queue": queue})

        return observe

    def _of_workers(self, number: Callable[[WorkerStatus], int]) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            if statuses := statuses_of(self._workers):
                yield Observation(sum(number(status) for status in statuses))

        return observe
