"""How long a job waits from the call that enqueues it to the first line of its handler."""

from __future__ import annotations

import json
import math
import subprocess
import time

from benchmarks.run import BARE, STEPWELL, Run
from benchmarks.stage import WARM_UP, Stage, stop

PERCENTILES = (50, 95, 99)


def latency(run: Run) -> None:
    """Idle, beside a bare insert, notify and claim; and at half of what producer and worker sustain together."""
    samples = 100 if run.quick else 500
    found: dict[str, list[list[float]]] = {BARE.name: [], STEPWELL.name: []}
    for _ in range(run.rounds):
        for system in (BARE, STEPWELL):
            with run.stage(system) as stage:
                found[system.name].append(stage.ping(samples))
    idle = {q: [percentile(sample, q) for sample in found[STEPWELL.name]] for q in PERCENTILES}
    for q, at_most in zip(PERCENTILES, (2.0, None, 4.0), strict=True):
        bare = [percentile(sample, q) for sample in found[BARE.name]]
        run.record("latency", f"idle, p{q}", idle[q], "ms", "bare insert, notify, claim", bare, at_most=at_most)
    with run.stage(STEPWELL) as stage:
        for hop, took in json.loads(stage.run_script("hops.py", samples)).items():
            run.record("latency", f"hop: {hop}", [took / 1000], "ms")
    if run.quick:
        return
    with run.stage(STEPWELL) as stage, stage.workers(100):
        flat_out = _sustained(stage)
        producer = stage.start_script("load.py", int(flat_out / 2))
        try:
            time.sleep(2)
            stage.run("ping", samples + WARM_UP)
        finally:
            stop([producer])
        loaded = stage.ran.latencies[WARM_UP:]
    run.record("latency", "producer and worker together, flat out", [flat_out], "jobs/s")
    for q in PERCENTILES:
        run.record("latency", f"at half that load, p{q}", [percentile(loaded, q)], "ms", f"idle, p{q}", idle[q])


def percentile(seconds: list[float], q: int) -> float:
    """In milliseconds."""
    return sorted(seconds)[math.ceil(len(seconds) * q / 100) - 1] * 1000


def _sustained(stage: Stage) -> float:
    """What runs through in five seconds when a producer puts in as much as it can, and no more than is run."""
    producer: subprocess.Popen[str] = stage.start_script("load.py", 0)
    try:
        stage.wait_for(1)
        time.sleep(1)
        before, began = stage.ran.count, time.monotonic()
        time.sleep(5)
        return (stage.ran.count - before) / (time.monotonic() - began)
    finally:
        stop([producer])
