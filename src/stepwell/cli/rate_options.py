"""The options of a rate that is set for a key or a queue."""

from __future__ import annotations

from typing import Annotated

import typer

from stepwell.cli.parse import UsageError

BurstOption = Annotated[
    int | None,
    typer.Option("--burst", metavar="N", help="So many may start at once after a pause.", show_default=False),
]
SmoothOption = Annotated[bool, typer.Option("--smooth", help="Start them one at a time, evenly spaced.")]


def check_burst(rate: str | None, burst: int | None, smooth: bool) -> None:
    if rate is None and (burst is not None or smooth):
        raise UsageError(f"{'--smooth' if smooth else '--burst'} needs --rate")
    if burst is not None and smooth:
        raise UsageError("--smooth starts one job at a time, so it has no --burst: leave one out")


def burst_text(burst: int | None, smooth: bool) -> str:
    return ", evenly spaced" if smooth else "" if burst is None else f", up to {burst} at once"
