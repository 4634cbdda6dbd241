"""Every kind of step, killed at its writes: what comes of it, and what it leaves, is as if nothing had happened."""

from __future__ import annotations

import os
from typing import Any

import pytest

from stepwell.testing import Sweep

from .conftest import Bench
from .program import Count

# make sweep: all points, and some runs in which the next worker is killed, too.
FULL = os.environ.get("STEPWELL_SWEEP") == "full"

pytestmark = [pytest.mark.crash, pytest.mark.timeout(0 if FULL else 120)]

EXPECTED: dict[str, tuple[dict[str, Any], Any]] = {
    "steps": ({"start": 1}, [1, 2, 3]),
    "retried": ({}, "ab"),
    "paid": ({}, [7, 8]),
    "whole": ({}, 1),
    "slept": ({}, [0, 3, 2592000]),
    "waited": ({}, ["early 0", "own", "late 0", "late 1", True]),
    "received": ({}, ["word 0", "word 1", "word 2", True]),
    "family": ({}, [10, [20, 30, 40], [50, 6], "stepwell.Fail"]),
    "mapped": ({}, [["a.", "b.", "c."], [2, 4, 6]]),
    "raced": ({}, [1, "won", 0]),
    "undone": ({}, None),
    "cancelled": ({}, None),
    "large": ({}, [70_000, 80_000, 90_000]),
    "restarted": ({"left": 2}, "done"),
    "plain": ({}, [1, "paid", "late 0", 30, [4, 5]]),
    "chain": ({}, 3),
    "machine": ({"state": Count(1)}, "counted 3"),
}

UNDONE = {"undone": ["car", "flight", "hotel"], "cancelled": ["flight", "hotel"]}


@pytest.mark.slow
@pytest.mark.parametrize("always_replay", [False, True], ids=["", "replayed"])
@pytest.mark.parametrize("task", list(EXPECTED))
def test_a_crash_changes_nothing_of(task: str, always_replay: bool, bench: Bench) -> None:
    args, result = EXPECTED[task]
    sweep = _sweep(bench, bench.app.tasks[task].call(**args), always_replay)
    assert sweep.ending.state == {"undone": "failed", "cancelled": "cancelled"}.get(task, "succeeded"), sweep.ending
    assert sweep.ending.result == result
    assert sweep.ending.effects["undone"] == UNDONE.get(task, [])


def _sweep(bench: Bench, call: Any, always_replay: bool) -> Sweep:
    sample, twice = (None, 10) if FULL else (1, 0) if always_replay else (2, 0)
    sweep = bench.sweep.run(
        call,
        effects=bench.effects,
        answer=bench.answer,
        always_replay=always_replay,
        sample=sample,
        twice=twice,
    )
    print(f"{call.task.name}: {sweep.writes} writes, {len(sweep.killed)} crashes, {sweep.seconds:.2f} s")
    return sweep
