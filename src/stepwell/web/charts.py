"""Small charts as numbers for SVG, which the server draws: no script, and no inline style that CSP would refuse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    width: float
    y: float
    height: float
    bad_y: float
    bad_height: float


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars over time: what went well, and on top of it what did not."""

    bars: list[Bar]
    width: int
    height: int
    most: float
    line: str
    """The path of a line over the bars; empty: there is none."""


def bars(values: Sequence[tuple[float, float]], width: int, height: int, line: Sequence[float | None] = ()) -> Bars:
    """Bars, and a line on the same scale."""
    most = max((*(good + bad for good, bad in values), *(value or 0 for value in line)), default=0) or 1
    step = width / max(len(values), 1)
    made: list[Bar] = []
    for place, (good, bad) in enumerate(values):
        tall, taller = _tall(good, most, height), _tall(bad, most, height)
        made.append(
            Bar(
                round(place * step + step * 0.1, 2),
                round(step * 0.8, 2),
                round(height - tall, 2),
                round(tall, 2),
                round(height - tall - taller, 2),
                round(taller, 2),
            )
        )
    heights = [None if value is None else height - 1 - value / most * (height - 2) for value in line]
    return Bars(made, width, height, most, _steps(heights, step))


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines over time on a logarithmic scale of seconds, each a path, and the powers of ten on it."""

    paths: list[str]
    width: int
    height: int
    step: float
    scale: list[tuple[float, float]]
    """The seconds and the height of each power of ten, from the top."""


def lines(values: Sequence[Sequence[float] | None], width: int, height: int) -> Lines | None:
    """A line for each number that a point has; None: no point has any."""
    known = [max(number, 1e-5) for point in values if point for number in point]
    if not known:
        return None
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    high = max(high, low + 1)

    def place(seconds: float) -> float:
        return (high - math.log10(max(seconds, 1e-5))) / (high - low) * (height - 2) + 1

    step = width / max(len(values), 1)
    numbers = max(len(point) for point in values if point)
    paths = [_steps([place(point[n]) if point else None for point in values], step) for n in range(numbers)]
    scale = [(10.0**power, round(place(10.0**power), 2)) for power in range(high, low - 1, -1)]
    return Lines(paths, width, height, step, scale)


def _steps(heights: Sequence[float | None], step: float) -> str:
    """A path with a level for each point, and gaps where there is none. A single point is then seen, too."""
    path: list[str] = []
    before = None
    for place, y in enumerate(heights):
        if y is not None:
            start = f"M{place * step:.2f} {y:.2f}" if before is None else f"V{y:.2f}"
            path.append(f"{start}H{(place + 1) * step:.2f}")
        before = y
    return "".join(path)


def _tall(value: float, most: float, height: int) -> float:
    # One failure among a thousand runs must still be seen.
    return max(value / most * height, 1.5) if value else 0.0
