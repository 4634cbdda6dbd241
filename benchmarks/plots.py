"""The plots that the docs show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot

from benchmarks.run import Run

mpl.use("svg")
# The same data make the same file.
mpl.rcParams["svg.hashsalt"] = "stepwell"
_OURS = "#2a6f97"
_OTHERS = "#b8b8b8"
_OTHER_LINES = ("#e07a5f", "#6a994e", "#8d6a9f", "#bc8f3a")


def draw(run: Run, place: Path, name: str) -> None:
    """Draw what this run has something to show for."""
    _bars(run, place / f"{name}-drain.svg")
    _lines(run, "soak: ", "seconds", "p50 in ms, while a snapshot is held", place / f"{name}-soak.svg")
    _lines(run, "snapshot: ", "seconds", "jobs/s, while a snapshot is held", place / f"{name}-snapshot.svg")
    _lines(run, "memory", "jobs done", "MB held by a worker", place / f"{name}-memory.svg")
    _lines(run, "growth: backlog", "jobs in the queue", "jobs/s", place / f"{name}-backlog.svg", log=True)
    _lines(run, "growth: processes", "worker processes", "jobs/s", place / f"{name}-processes.svg")


def _bars(run: Run, path: Path) -> None:
    rates: dict[str, tuple[float, float, float, bool]] = {}
    for figure in run.figures:
        if figure.scenario in ("ceiling", "drain"):
            value = figure.value
            rates[figure.what] = (value.median, value.least, value.most, figure.scenario == "drain")
    if not rates:
        return
    names = list(reversed(rates))
    medians = [rates[name][0] for name in names]
    spread = [[rates[name][0] - rates[name][1] for name in names], [rates[name][2] - rates[name][0] for name in names]]
    figure, axes = _paper(height=0.32 * len(names) + 0.8)
    axes.barh(
        names, medians, xerr=spread, color=[_OURS if rates[name][3] else _OTHERS for name in names], ecolor="#444"
    )
    axes.set_xlabel("jobs/s (blue: the worker; grey: the bare loop)")
    _save(figure, path)


def _lines(run: Run, prefix: str, x: str, y: str, path: Path, *, log: bool = False) -> None:
    lines = {name.removeprefix(prefix): line for name, line in run.series.items() if name.startswith(prefix) and line}
    if not lines:
        return
    figure, axes = _paper()
    others = iter(_OTHER_LINES)
    for name, line in lines.items():
        colour = _OURS if name in ("", "stepwell") else next(others)
        axes.plot(*zip(*line, strict=True), marker="o", markersize=3, color=colour, label=name)
    if log:
        axes.set_xscale("log")
    if len(lines) > 1:
        axes.legend()
    axes.set_ylim(bottom=0)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    _save(figure, path)


def _paper(height: float = 3.2) -> tuple[Any, Any]:
    axes: Any
    figure, axes = pyplot.subplots(figsize=(7, height))
    axes.grid(axis="both", color="#e5e5e5")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
