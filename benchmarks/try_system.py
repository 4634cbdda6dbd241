"""Try one system's program: `python -m benchmarks.try_system NAME JOBS CONCURRENCY PROCESSES`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from benchmarks import venvs
from benchmarks.run import Run
from benchmarks.server import running
from benchmarks.system import System


def main() -> None:
    """Drain, then ping."""
    name, jobs, concurrency, processes = sys.argv[1], *map(int, sys.argv[2:5])
    system = System(name) if name in ("stepwell", "bare") else venvs.system(name)
    with running() as server, tempfile.TemporaryDirectory() as place:
        run = Run(server, Path(place), quick=True)
        with run.stage(system) as stage:
            began = time.monotonic()
            stage.run("fill", jobs)
            print(f"fill: {jobs} jobs in {time.monotonic() - began:.2f} s, the start of Python included")
            print(f"drain: {stage.drain(jobs, concurrency, processes).rate:,.0f} jobs/s")
            latencies = sorted(stage.ping(100))
            print(f"latency: p50 {latencies[49] * 1000:.1f} ms, p99 {latencies[98] * 1000:.1f} ms")


main()
