"""The result of a crash sweep, and how two endings differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stepwell.errors import StepwellError
from stepwell.testing.crash_injection import CrashPoint


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended."""

    state: str
    result: Any
    error: str | None
    effects: Any


@dataclass(slots=True)
class Sweep:
    """The result of a sweep in which all runs ended alike: that ending, the number of writes of the run without faults,
    and the points at which workers were killed."""

    ending: Ending
    writes: int
    killed: list[tuple[CrashPoint, ...]] = field(default_factory=list[tuple[CrashPoint, ...]])
    seconds: float = 0.0
    """How long the whole sweep took."""


class SweepFailed(StepwellError, AssertionError):
    """An interrupted job ended differently. `differences` says at which points, and how."""

    def __init__(self, task: str, tried: int, differences: Sequence[str]) -> None:
        listed = "\n".join(differences)
        where = f"ended differently at {len(differences)} of {tried} crash points" if tried else "does not end"
        super().__init__(f"{task!r} {where}:\n{listed}")
        self.differences = list(differences)


def compare(expected: Ending, found: Ending) -> str:
    lines: list[str] = []
    for what in ("state", "result", "error", "effects"):
        wanted, got = getattr(expected, what), getattr(found, what)
        if wanted != got:
            lines.append(f"    {what}: without a fault {wanted!r}\n    {' ' * len(what)}  but here      {got!r}")
    return "\n".join(lines)
