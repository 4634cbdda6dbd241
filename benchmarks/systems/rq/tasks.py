"""The functions whose jobs are measured."""

from __future__ import annotations

from program import open_tally

tally = open_tally()


def noop() -> None:
    """Nothing."""
    tally.hit()


def answer(sent: int) -> None:
    """Say how long it took to get here."""
    tally.hit_after(sent)
