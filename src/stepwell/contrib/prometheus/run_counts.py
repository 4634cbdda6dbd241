"""Counts of what the jobs of one process did, made from telemetry events. Cheap to add to, and bounded in labels."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from stepwell.telemetry.bus import Telemetry
from stepwell.telemetry.enqueue import GroupEnqueued, JobEnqueued
from stepwell.telemetry.jobs import JobsClaimed, JobsRescued, OutcomeRefused, OutcomesWritten, RunsEnded
from stepwell.telemetry.worker import LeaseLost, LoopBlocked

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)

EVENTS = (
    GroupEnqueued,
    JobEnqueued,
    JobsClaimed,
    JobsRescued,
    LeaseLost,
    LoopBlocked,
    OutcomeRefused,
    OutcomesWritten,
    RunsEnded,
)

MOST_LABELS = 500
"""Pairs of task and queue that are counted apart. Anybody who may enqueue can invent queues: the rest is "other"."""
OTHER = "other"

Labels = tuple[str, str]


class Histogram:
    """Observations in buckets."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def copy(self) -> Histogram:
        made = Histogram(self._bounds)
        made._counts = list(self._counts)
        made.sum = self.sum
        return made

    def include(self, other: Histogram) -> None:
        """Add the observations of another with the same bounds."""
        self._counts = [own + theirs for own, theirs in zip(self._counts, other._counts, strict=True)]
        self.sum += other.sum

    def buckets(self) -> list[tuple[str, float]]:
        """The bounds as text, each with how many observations are at most that, as Prometheus has them."""
        total = 0
        found: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, total))
        return found


class RunCounts:
    """The counts of one process. Events come from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Labels, Labels] = {}
        self.ended: Counter[tuple[str, str, str]] = Counter()
        self.enqueued: Counter[Labels] = Counter()
        self.run: dict[Labels, Histogram] = {}
        self.wait: dict[Labels, Histogram] = {}
        self.claims = Histogram(SIZES)
        self.flushes = Histogram(SIZES)
        self.flush_seconds = Histogram(SECONDS)
        self.totals: Counter[str] = Counter()

    def add(self, event: Telemetry) -> None:
        with self._lock:
            if isinstance(event, RunsEnded):
                self._add_runs(event)
            elif isinstance(event, JobEnqueued):
                self.enqueued[self._labels(event.task, event.queue)] += 1
            else:
                self._add_rare(event)

    def _add_runs(self, event: RunsEnded) -> None:
        # Most runs of a flush are of one task: look its histograms up once.
        of: Labels | None = None
        labels: Labels = (OTHER, OTHER)
        run = wait = Histogram(SECONDS)
        outcomes: Counter[tuple[str, str, str]] = Counter()
        for task, queue, outcome, seconds, waited in event.runs:
            if of is None or of[0] != task or of[1] != queue:
                of = (task, queue)
                labels = self._labels(task, queue)
                run, wait = _histogram(self.run, labels), _histogram(self.wait, labels)
            outcomes[*labels, outcome] += 1
            run.observe(seconds)
            if waited is not None:
                wait.observe(waited)
        self.ended.update(outcomes)

    def _add_rare(self, event: Telemetry) -> None:
        match event:
            case OutcomesWritten():
                self.flushes.observe(event.count)
                self.flush_seconds.observe(event.seconds)
            case JobsClaimed():
                self.claims.observe(event.count)
            case GroupEnqueued():
                self.enqueued[OTHER, OTHER] += event.count
            case JobsRescued():
                self.totals["rescued"] += event.count
            case OutcomeRefused():
                self.totals["outcomes_refused"] += 1
            case LeaseLost():
                self.totals["leases_lost"] += 1
            case LoopBlocked():
                self.totals["loop_blocked"] += 1
            case _:
                pass

    def _labels(self, task: str, queue: str) -> Labels:
        key = (task, queue)
        found = self._known.get(key)
        if found is not None:
            return found
        if len(self._known) < MOST_LABELS:
            self._known[key] = key
            return key
        # Tasks come from the code of a worker, but the jobs of a producer may be of any task.
        tasks = {known for known, _ in self._known}
        return (task if task in tasks else OTHER, OTHER)

    def snapshot(self) -> RunCounts:
        """A copy to read from while events go on."""
        made = RunCounts()
        with self._lock:
            made.ended, made.enqueued, made.totals = Counter(self.ended), Counter(self.enqueued), Counter(self.totals)
            made.run = {labels: histogram.copy() for labels, histogram in self.run.items()}
            made.wait = {labels: histogram.copy() for labels, histogram in self.wait.items()}
            made.claims, made.flushes = self.claims.copy(), self.flushes.copy()
            made.flush_seconds = self.flush_seconds.copy()
        return made


def summed(snapshots: Sequence[RunCounts]) -> RunCounts:
    """Add up snapshots of several apps, into the first."""
    total, *others = snapshots
    for other in others:
        total.ended.update(other.ended)
        total.enqueued.update(other.enqueued)
        total.totals.update(other.totals)
        for mine, theirs in ((total.run, other.run), (total.wait, other.wait)):
            for labels, histogram in theirs.items():
                _histogram(mine, labels).include(histogram)
        total.claims.include(other.claims)
        total.flushes.include(other.flushes)
        total.flush_seconds.include(other.flush_seconds)
    return total


def _histogram(histograms: dict[Labels, Histogram], labels: Labels) -> Histogram:
    found = histograms.get(labels)
    if found is None:
        found = histograms[labels] = Histogram(SECONDS)
    return found
