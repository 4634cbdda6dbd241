"""How much faster jobs drain when a hundred of them share a call; beside the plain drain, in the same rounds."""

from __future__ import annotations

from benchmarks.run import STEPWELL, Run

_JOBS = 30_000
# The drains are short, so that what disturbs the machine disturbs both, and many.
_TIMES = 3
_SLOTS = 10
_CASES = {"one by one": ("noop", "{}"), "batches of 100": ("batched", '{"numbers": 1}')}


def batch_handlers(run: Run) -> None:
    """Drain no-ops with the slots that a worker has by default."""
    rates: dict[str, list[float]] = {case: [] for case in _CASES}
    rounds = run.rounds * _TIMES
    for number in range(rounds):
        for case, (task, args) in _CASES.items():
            print(f"   round {number + 1} of {rounds}: {case}", flush=True)
            with run.stage(STEPWELL, _JOBS, {"BENCH_TASK": task, "BENCH_ARGS": args}) as stage:
                rates[case].append(stage.drain(_JOBS, _SLOTS).rate)
    one_by_one, batched = rates.values()
    run.record("flow", "batches of 100", batched, "jobs/s", "one by one", one_by_one, at_least=1.5)
