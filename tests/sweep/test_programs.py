"""Random durable programs, killed at their writes: each comes to what an oracle foresees that knows of no faults."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings

from .conftest import Bench
from .oracle import Unforeseeable, foresee
from .programs import Ops, programs

FULL = os.environ.get("STEPWELL_SWEEP") == "full"

pytestmark = [pytest.mark.crash, pytest.mark.timeout(0 if FULL else 120)]
EXAMPLES = int(os.environ.get("STEPWELL_SWEEP_PROGRAMS", "300" if FULL else "4"))

_quietly = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    # To make a program smaller takes longer than to read it.
    phases=[Phase.explicit, Phase.generate],
)


@pytest.mark.slow
@pytest.mark.parametrize("always_replay", [False, True], ids=["", "replayed"])
def test_a_program_comes_to_what_the_oracle_foresees(always_replay: bool, bench: Bench) -> None:
    crashes = writes = tried = 0

    @_quietly
    @given(programs)
    def check(ops: Ops) -> None:
        nonlocal crashes, writes, tried
        try:
            expected = foresee(_plain(ops))
        except Unforeseeable:
            reject()
        sweep = bench.sweep.run(
            bench.app.tasks["interpret"].call(ops),
            effects=bench.effects,
            answer=bench.unnumbered_answer,
            always_replay=always_replay,
            sample=12 if FULL else 2,
            twice=4 if FULL else 1,
        )
        tried, writes, crashes = tried + 1, writes + sweep.writes, crashes + len(sweep.killed)
        ending = sweep.ending
        assert ending.state == expected.state, (ending, expected)
        assert ending.result == expected.trace
        if expected.state == "failed":
            assert ("JobFailed" in str(ending.error)) == expected.by_child, ending.error
        assert ending.effects["done"] == sorted(expected.world.done)
        assert ending.effects["paid"] == sorted(expected.world.paid)
        assert sorted(ending.effects["undone"]) == sorted(expected.world.undone)
        assert ending.effects["steps left"] == 0

    check()
    print(f"{tried} programs, {writes} writes without faults, {crashes} crashes")


def _plain(ops: Ops) -> Ops:
    return json.loads(json.dumps(ops))
