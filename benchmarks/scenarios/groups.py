"""What it costs that jobs are members of a group: the drain, beside that of the same jobs in no group."""

from __future__ import annotations

from benchmarks.run import STEPWELL, Run

_PLAIN = "in no group"


def groups(run: Run) -> None:
    """Measure every case once in each round. A drain ends when the callbacks have ended, too."""
    jobs = 20_000 if run.quick else 100_000
    cases = {_PLAIN: 0, "one group": 1, "1,000 groups": 1_000}
    rates: dict[str, list[float]] = {case: [] for case in cases}
    for number in range(run.rounds):
        for case, count in cases.items():
            print(f"   round {number + 1} of {run.rounds}: {case}", flush=True)
            rates[case].append(group_rate(run, jobs, count, 500))
    run.record("groups", f"drain, {_PLAIN}", rates[_PLAIN], "jobs/s")
    for case in ("one group", "1,000 groups"):
        run.record("groups", f"drain, {case}", rates[case], "jobs/s", _PLAIN, rates[_PLAIN], at_least=0.9)


def group_rate(run: Run, jobs: int, groups: int, concurrency: int) -> float:
    """Jobs done in a second, that are in so many groups of equal size; 0: in none."""
    with run.stage(STEPWELL, jobs, {"BENCH_GROUPS": str(groups)}) as stage:
        return stage.drain(jobs, concurrency).rate
