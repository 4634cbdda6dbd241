"""The rate against the depth of the queue, and against the number of worker processes."""

from __future__ import annotations

import itertools
import statistics

from benchmarks.run import STEPWELL, Run
from benchmarks.scenarios.backlog import put

_BACKLOGS = (1_000, 10_000, 100_000, 1_000_000)
_PROCESSES = (1, 2, 4, 8)
# Enough that the last to start still finds the queue full.
_MANY = 1_000_000


def growth(run: Run) -> None:
    """One line each."""
    by_backlog: dict[int, list[float]] = {jobs: [] for jobs in _BACKLOGS}
    by_processes: dict[int, list[float]] = {processes: [] for processes in _PROCESSES}
    for _ in range(2):  # a million jobs to put in for each figure
        for jobs in _BACKLOGS:
            with run.stage(STEPWELL) as stage:
                put(stage, jobs)
                by_backlog[jobs].append(stage.drain(jobs, 500, at_most=10).rate)
        for processes in _PROCESSES:
            with run.stage(STEPWELL) as stage:
                put(stage, _MANY)
                by_processes[processes].append(stage.drain(_MANY, 100, processes, at_most=8).rate)
    for jobs, rates in by_backlog.items():
        run.record("growth", f"backlog of {jobs:,}", rates, "jobs/s", "100,000", by_backlog[100_000])
    run.record("growth", "1 worker process", by_processes[1], "jobs/s")
    for fewer, processes in itertools.pairwise(_PROCESSES):
        what, before = f"{processes} worker processes", by_processes[fewer]
        run.record("growth", what, by_processes[processes], "jobs/s", f"with {fewer}", before, at_least=1.0)
    for name, found in (("backlog", by_backlog), ("processes", by_processes)):
        run.series[f"growth: {name}"] = [(number, statistics.median(rates)) for number, rates in found.items()]
