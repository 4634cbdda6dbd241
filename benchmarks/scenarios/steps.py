"""Durable functions with 5 and with 50 steps."""

from __future__ import annotations

from benchmarks.run import Run


def steps(run: Run) -> None:
    """The place for it: there is nothing to measure yet."""
    run.note("steps: not measured, for durable steps do not exist yet")
