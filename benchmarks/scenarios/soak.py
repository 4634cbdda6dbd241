"""A steady load on a worker that keeps up, while a transaction stays open: does the latency stay as it was?

A drain cannot tell. Under a steady load every claim comes to the end of the queue, and a claim that looks for more from
its front walks over every dead row that the open transaction keeps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.run import STEPWELL, Run
from benchmarks.scenarios.latency import percentile
from benchmarks.scenarios.snapshot import held_snapshot
from benchmarks.stage import Stage, stop
from benchmarks.system import System

RATE = 4_000
_SLOTS = 100
_WARM_UP = 5.0
_WINDOW = 20.0
_QUICK_WINDOW = 5.0
_WINDOWS = 9
_QUICK_WINDOWS = 3


@dataclass(frozen=True)
class Soaked:
    """Latencies in seconds before a snapshot was held, at the end of the time for which it was, and on the way: in
    several windows, of which the median counts: from one window to the next, the p99 of an undisturbed worker doubles
    or halves with the speed of the disk."""

    before: list[list[float]]
    after: list[list[float]]
    on_the_way: list[tuple[float, float]]
    """The median in milliseconds of each window, by the seconds since the snapshot."""


def soak(run: Run) -> None:
    """The latency after ten minutes must be about that before."""
    record_soak(run, STEPWELL, at_most=1.5)


def record_soak(run: Run, system: System, rate: int = RATE, at_most: float | None = None) -> None:
    """Soak one system, and record its latencies beside those it had before."""
    seconds = 60 if run.quick else 600
    length, count = (_QUICK_WINDOW, _QUICK_WINDOWS) if run.quick else (_WINDOW, _WINDOWS)
    soaked = soak_one(run, system, rate, seconds, length, count)
    run.series[f"soak: {system.name}"] = soaked.on_the_way
    for q in (50, 99):
        run.record(
            "soak",
            f"{system.name}, {rate:,} jobs/s, p{q} {seconds} s later",
            [percentile(window, q) for window in soaked.after],
            "ms",
            "before the snapshot",
            [percentile(window, q) for window in soaked.before],
            at_most=at_most,
        )


def soak_one(run: Run, system: System, rate: int, seconds: float, window: float, count: int) -> Soaked:
    """Measure for some windows, hold a snapshot for so many seconds, and measure for the last windows of them."""
    with run.stage(system) as stage, stage.workers(_SLOTS):
        producer = stage.start("flow", rate)
        try:
            stage.wait_for(1)
            time.sleep(_WARM_UP)
            before = [_window(stage, window) for _ in range(count)]
            windows: list[list[float]] = []
            with held_snapshot(stage.dsn):
                while len(windows) * window < seconds:
                    windows.append(_window(stage, window))
        finally:
            stop([producer])
    on_the_way = [((n + 0.5) * window, percentile(found, 50)) for n, found in enumerate(windows) if found]
    return Soaked(before, windows[-count:], on_the_way)


def _window(stage: Stage, seconds: float) -> list[float]:
    """The latencies of the handlers that ran in so many seconds from now."""
    began = stage.ran.answers
    time.sleep(seconds)
    return stage.ran.latencies[began:]
