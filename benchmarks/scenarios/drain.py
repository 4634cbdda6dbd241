"""How fast one worker, and two, empty a queue; beside the ceiling, in the same rounds."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.run import BARE, STEPWELL, Run
from benchmarks.system import System

_KILOBYTE = '{"text": "' + "x" * 1000 + '"}'


@dataclass(frozen=True)
class _Case:
    what: str
    system: System = STEPWELL
    concurrency: int = 500
    processes: int = 1
    jobs: int = 50_000
    task: str = "noop"
    args: str = "{}"


_BARE = {
    10: _Case("bare loop, batches of 10", BARE, 10),
    100: _Case("bare loop, batches of 100", BARE, 100),
    500: _Case("bare loop, batches of 500", BARE, 500),
    2000: _Case("bare loop, batches of 2,000", BARE, 2000),
}
_BARE_TWO = _Case("bare loop, two processes", BARE, 500, processes=2, jobs=100_000)
_BARE_1KB = _Case("bare loop, 1 KB args and result", BARE, 500, args=_KILOBYTE)
_AT = {
    10: _Case("concurrency 10", concurrency=10),
    100: _Case("concurrency 100", concurrency=100),
    500: _Case("concurrency 500"),
}
_TWO = _Case("two processes", processes=2, jobs=100_000)
_1KB = _Case("1 KB args and result", task="echo", args=_KILOBYTE)
_THREADS = _Case("plain functions, 100 threads", concurrency=100, task="plain")
_PROCESSES = _Case("plain functions, in processes", concurrency=100, task="apart", jobs=5_000)

_QUICK = (_BARE[500], _AT[500], _AT[10], _BARE_TWO, _TWO)
_ALL = (*_BARE.values(), *_AT.values(), _BARE_TWO, _TWO, _BARE_1KB, _1KB, _THREADS, _PROCESSES)


def drain(run: Run) -> None:
    """Measure every case once in each round, so that what disturbs the machine disturbs them alike."""
    cases = _QUICK if run.quick else _ALL
    rates: dict[_Case, list[float]] = {case: [] for case in cases}
    for number in range(run.rounds):
        for case in cases:
            print(f"   round {number + 1} of {run.rounds}: {case.what}", flush=True)
            environment = {"BENCH_TASK": case.task, "BENCH_ARGS": case.args}
            with run.stage(case.system, case.jobs, environment) as stage:
                rates[case].append(stage.drain(case.jobs, case.concurrency, case.processes).rate)
    # The ceiling of 500 slots is a batch for each of them. What larger batches would give is shown beside it.
    ceiling = rates[_BARE[500]]
    for case in cases:
        if case.system is BARE:
            run.record("ceiling", case.what, rates[case], "jobs/s")
    for case, wanted in ((_AT[500], 0.7), (_AT[100], None), (_AT[10], None), (_THREADS, None), (_PROCESSES, None)):
        if case in rates:
            run.record("drain", case.what, rates[case], "jobs/s", "bare loop", ceiling, at_least=wanted)
    if _BARE[2000] in rates:
        larger = _BARE[2000]
        run.record("drain", _AT[500].what, rates[_AT[500]], "jobs/s", larger.what, rates[larger])
    run.record("drain", _AT[10].what, rates[_AT[10]], "jobs/s", "concurrency 500", rates[_AT[500]], at_least=0.5)
    for case, bare in ((_TWO, _BARE_TWO), (_1KB, _BARE_1KB)):
        if case in rates:
            run.record("drain", case.what, rates[case], "jobs/s", bare.what, rates[bare])
