"""The rate against the depth of the queue, and against the number of worker processes."""

from __future__ import annotations

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
    for _ in range(run.rounds):
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
    before = by_processes[1]
    for processes, rates in by_processes.items():
        wanted = 1.0 if processes > 1 else None
        run.record("growth", f"{processes} worker processes", rates, "jobs/s", "half as many", before, at_least=wanted)
        before = rates
    run.series["growth: backlog"] = [(jobs, max(rates)) for jobs, rates in by_backlog.items()]
    run.series["growth: processes"] = [(processes, max(rates)) for processes, rates in by_processes.items()]
