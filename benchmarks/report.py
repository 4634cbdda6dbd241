"""Write what a run found: JSON for machines, a Markdown table for people, plots for the docs."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import plots
from benchmarks.figure import Figure, number
from benchmarks.run import Run

RESULTS = Path(__file__).parent / "results"


def write(run: Run, name: str, table: list[str] | None = None, place: Path = RESULTS) -> None:
    """Write NAME.json, NAME.md, which begins with `table`, and the plots for which this run has something to show."""
    place.mkdir(exist_ok=True)
    for old in place.glob(f"{name}[.-]*"):
        old.unlink()
    about = _about(run)
    found: dict[str, Any] = {
        "about": about,
        "figures": [figure.as_json() for figure in run.figures],
        "series": run.series,
        "notes": run.notes,
    }
    (place / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    (place / f"{name}.md").write_text(_markdown(run, about, table or []))
    plots.draw(run, place, name)
    print(f"written: {', '.join(sorted(path.name for path in place.glob(f'{name}[.-]*')))} in {place}")


def _about(run: Run) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="minutes"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "rounds": run.rounds,
        "command": " ".join(["python -m", _module(), *sys.argv[1:]]),
        "libraries": {name: version(name) for name in ("stepwell", "psycopg", "msgspec", "uvloop")},
        "postgres": run.server.settings(),
    }


def _module() -> str:
    spec = sys.modules["__main__"].__spec__
    return spec.name.removesuffix(".__main__") if spec else "benchmarks"


def _markdown(run: Run, about: dict[str, Any], table: list[str]) -> str:
    postgres = ", ".join(f"{key} {value}" for key, value in about["postgres"].items())
    head = (
        f"`{about['command']}`, {about['at']}. Python {about['python']}, {about['platform']}, {about['cores']} cores. "
        f"Postgres on the same machine: {postgres}. Where brackets follow a figure it is the median of "
        "several rounds, with the least and the most."
    )
    lines = ["| scenario | what | figure | measured against | ratio | to reach |", "|---|---|---:|---|---:|---|"]
    lines += [_row(figure) for figure in run.figures]
    return (
        "\n".join(
            [head, "", *table, *([""] if table else []), *lines, "", *(f"- {note}" for note in run.notes)]
        ).rstrip()
        + "\n"
    )


def _row(figure: Figure) -> str:
    spread = ""
    if figure.value.least != figure.value.most:
        spread = f" ({number(figure.value.least)} to {number(figure.value.most)})"
    other = f"{figure.against}: {number(figure.other.median)}" if figure.other else ""
    ratio = f"{figure.ratio:.2f}" if figure.ratio is not None else ""
    reach = figure.to_reach
    if figure.reached is not None:
        reach = f"{figure.to_reach}: {'reached' if figure.reached else '**missed**'}"
    return (
        f"| {figure.scenario} | {figure.what} | {number(figure.value.median)} {figure.unit}{spread} "
        f"| {other} | {ratio} | {reach} |"
    )
