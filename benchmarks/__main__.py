"""Run the suite: `python -m benchmarks`, `--quick`, or some scenarios by name."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks import report
from benchmarks.run import Run
from benchmarks.scenarios import QUICK, SCENARIOS
from benchmarks.server import running


def main() -> None:
    """Measure, print, and write `results/`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    # "[]" is what argparse checks when none is given.
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], help=f"some of {', '.join(SCENARIOS)}")
    parser.add_argument("--quick", action="store_true", help="a minute's worth: fewer jobs, one round")
    given = parser.parse_args()
    chosen: list[str] = given.scenarios or list(QUICK if given.quick else SCENARIOS)
    began = time.monotonic()
    with running() as server, tempfile.TemporaryDirectory() as place:
        run = Run(server, Path(place), quick=given.quick)
        try:
            for number, name in enumerate(chosen, 1):
                print(f"-- {name} ({number} of {len(chosen)}, {time.monotonic() - began:.0f} s)", flush=True)
                SCENARIOS[name](run)
        finally:
            # What is published is a whole run.
            whole = not given.quick and {figure.scenario for figure in run.figures} >= set(SCENARIOS) - {"steps"}
            report.write(run, "suite" if whole else "part")
    print(f"{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
