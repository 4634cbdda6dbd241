"""The rate against the depth of the queue, and against the number of worker processes."""

from __future__ import annotations

import itertools
import statistics

from benchmarks.run import BARE, STEPWELL, Run
from benchmarks.scenarios.backlog import put
from benchmarks.system import System

_BACKLOGS = (1_000, 10_000, 100_000, 1_000_000)
_PROCESSES = (1, 2, 4, 8)
# Enough that the last to start still finds the queue full.
_MANY = 1_000_000
_SECONDS = 6
# Fewer than elsewhere: for most figures a million jobs are put in.
_ROUNDS = 2


def growth(run: Run) -> None:
    """One line each; the processes also beside as many bare loops."""
    by_backlog: dict[int, list[float]] = {jobs: [] for jobs in _BACKLOGS}
    by_processes: dict[int, list[float]] = {processes: [] for processes in _PROCESSES}
    bare: dict[int, list[float]] = {processes: [] for processes in _PROCESSES}
    for _ in range(_ROUNDS):
        for jobs, rates in by_backlog.items():
            rates.append(_first_seconds(run, STEPWELL, jobs, 500, 1))
        for processes in _PROCESSES:
            by_processes[processes].append(_first_seconds(run, STEPWELL, _MANY, 100, processes))
            bare[processes].append(_first_seconds(run, BARE, _MANY, 100, processes))
    for jobs, rates in by_backlog.items():
        run.record("growth", f"backlog of {jobs:,}", rates, "jobs/s", "100,000", by_backlog[100_000])
    for processes, rates in by_processes.items():
        run.record("growth", _what(processes), rates, "jobs/s", "as many bare loops", bare[processes])
    for fewer, processes in itertools.pairwise(_PROCESSES):
        rates, before = by_processes[processes], by_processes[fewer]
        run.record("growth", _what(processes), rates, "jobs/s", f"with {fewer}", before, at_least=1.0)
    for name, found in (("backlog", by_backlog), ("processes", by_processes)):
        run.series[f"growth: {name}"] = [(number, statistics.median(rates)) for number, rates in found.items()]


def _first_seconds(run: Run, system: System, jobs: int, concurrency: int, processes: int) -> float:
    with run.stage(system) as stage:
        put(stage, jobs)
        return stage.drain(jobs, concurrency, processes, at_most=_SECONDS).rate


def _what(processes: int) -> str:
    return f"{processes} worker process{'es' if processes > 1 else ''}"
