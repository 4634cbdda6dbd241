"""A measured figure, what it is held against, and what was to be reached."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Measured:
    """The median of some rounds, and how far they lay apart."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, rounds: Sequence[float]) -> Measured:
        return cls(statistics.median(rounds), min(rounds), max(rounds))


@dataclass(frozen=True)
class Figure:
    """One line of the results. The ratio is to `against`: the ceiling, or another figure of the same run."""

    scenario: str
    what: str
    value: Measured
    unit: str
    against: str = ""
    other: Measured | None = None
    at_least: float | None = None
    at_most: float | None = None
    limit: float | None = None
    """The value itself must not be more than this."""

    @property
    def ratio(self) -> float | None:
        return self.value.median / self.other.median if self.other and self.other.median else None

    @property
    def reached(self) -> bool | None:
        """None: nothing was to be reached."""
        if self.limit is not None:
            return self.value.median <= self.limit
        if self.ratio is None or (self.at_least is None and self.at_most is None):
            return None
        return (self.at_least is None or self.ratio >= self.at_least) and (
            self.at_most is None or self.ratio <= self.at_most
        )

    @property
    def to_reach(self) -> str:
        if self.limit is not None:
            return f"at most {number(self.limit)} {self.unit}"
        if self.at_least is not None:
            return f"at least {self.at_least:g}"
        return f"at most {self.at_most:g}" if self.at_most is not None else ""

    def line(self) -> str:
        """For the terminal."""
        text = f"{self.scenario:10} {self.what:44} {number(self.value.median):>9} {self.unit:9}"
        if self.other is not None and self.ratio is not None:
            text += f" {self.ratio:5.2f} of {number(self.other.median):>8} ({self.against})"
        if self.reached is not None:
            text += f"  {'reached' if self.reached else 'MISSED'}: {self.to_reach}"
        return text.rstrip()

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "reached": self.reached}


def number(value: float) -> str:
    """Three digits that count, and no more than a reader needs."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
