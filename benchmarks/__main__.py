"""Run the suite: `python -m benchmarks`, `--quick`, or some scenarios by name."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks import report
from benchmarks.interrupt import interruptible
from benchmarks.run import Run
from benchmarks.scenarios import QUICK, SCENARIOS
from benchmarks.server import running


def main() -> None:
    """Measure, print, and write `results/`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="scenario", help=f"some of {', '.join(SCENARIOS)}; else all")
    parser.add_argument("--quick", action="store_true", help="a minute's worth: fewer jobs, one round")
    given = parser.parse_args()
    for name in given.scenarios:
        if name not in SCENARIOS:
            parser.error(f"{name!r} is no scenario: choose from {', '.join(SCENARIOS)}")
    chosen: list[str] = given.scenarios or list(QUICK if given.quick else SCENARIOS)
    began = time.monotonic()
    with running() as server, tempfile.TemporaryDirectory() as place:
        run = Run(server, Path(place), quick=given.quick)
        # What is published is a whole run; of any other what there is.
        name = "part"
        try:
            for number, scenario in enumerate(chosen, 1):
                print(f"-- {scenario} ({number} of {len(chosen)}, {time.monotonic() - began:.0f} s)", flush=True)
                SCENARIOS[scenario](run)
            name = "suite" if chosen == list(SCENARIOS) and not given.quick else "part"
        finally:
            report.write(run, name)
    print(f"{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    interruptible(main)
