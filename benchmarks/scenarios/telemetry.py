"""What telemetry costs: drains with a plugin, beside the drain without one in the same rounds."""

from __future__ import annotations

import psutil

from benchmarks.run import STEPWELL, Run
from benchmarks.scenarios.cost import cpu

_SLOTS = 500
_CASES = {
    "nobody subscribes": ("", None),
    "Prometheus": ("prometheus", 0.9),
    "OpenTelemetry, every run sampled": ("opentelemetry 1", 0.5),
    "OpenTelemetry, one in a hundred": ("opentelemetry 0.01", 0.9),
}


def telemetry(run: Run) -> None:
    """The drains, and the processor time of the worker for each job, its start included."""
    jobs = 10_000 if run.quick else 50_000
    rates: dict[str, list[float]] = {case: [] for case in _CASES}
    spent: dict[str, list[float]] = {case: [] for case in _CASES}
    for number in range(run.rounds):
        for case, (plugins, _) in _CASES.items():
            print(f"   round {number + 1} of {run.rounds}: {case}", flush=True)
            with run.stage(STEPWELL, jobs, {"BENCH_PLUGINS": plugins}) as stage:
                rates[case].append(stage.drain(jobs, _SLOTS).rate)
            with run.stage(STEPWELL, jobs, {"BENCH_PLUGINS": plugins}) as stage, stage.workers(_SLOTS) as (worker,):
                stage.wait_for(jobs)
                spent[case].append(cpu(psutil.Process(worker.pid)) / jobs * 1e6)
    plain = rates["nobody subscribes"]
    for case, (_, least) in _CASES.items():
        if least is not None:
            run.record("telemetry", case, rates[case], "jobs/s", "no plugin", plain, at_least=least)
        run.record("telemetry", f"{case}, Python", spent[case], "µs CPU")
