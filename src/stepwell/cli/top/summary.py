"""The lines above the tables: jobs by state, the rate, the workers, and what needs a person."""

from __future__ import annotations

from collections.abc import Iterator

from stepwell.cli.output import STYLES
from stepwell.cli.top.tables import sparkline
from stepwell.cli.top.view import View
from stepwell.telemetry.bus import counted
from stepwell.web import notices as web_notices
from stepwell.web.wording import compact_number, count

Line = list[tuple[str, str]]
"""Texts, each with its style."""


def summary(view: View, width: int = 80) -> list[Line]:
    """Two lines that fit into the width, as far as a number does."""
    return [_states(view, width), _rates(view, width)]


def notices(view: View, most: int | None = None) -> Iterator[str]:
    """Sentences about what needs a person, as the dashboard has them, problems first; at most so many of them."""
    needed = sorted(web_notices.notices(view.overview, view.now), key=lambda notice: notice.level != "problem")
    yield from [notice.text for notice in needed[:most]]
    if most is not None and len(needed) > most:
        yield f"And {len(needed) - most} more."


def _states(view: View, width: int) -> Line:
    line: Line = []
    for state in ("running", "ready", "scheduled", "waiting", "blocked", "succeeded", "failed", "cancelled"):
        number = view.overview["states"].get(state, 0)
        # Rare states are named only if there are such jobs.
        if not number and state in ("scheduled", "waiting", "blocked", "cancelled"):
            continue
        part = f"{count(number, more=state in view.overview['states']['more'])} {state}"
        if sum(len(text) for text, _ in line) + len(part) > width:
            break
        line += [(part, STYLES.get(state, "") if number else "dim"), ("   ", "")]
    return line[:-1]


def _rates(view: View, width: int) -> Line:
    workers = view.overview["workers"]
    line: Line = [(f"{compact_number(view.rate)} runs/s", "bold")]
    busy = f"{counted(workers['alive'], 'worker')}, {workers['running']} of {workers['slots']} slots busy"
    chart = sparkline(view.minutes)
    room = width - len(line[0][0]) - len(busy) - 22
    if chart.strip() and room >= 10:
        line += [("   ", ""), (chart[-min(room, 60) :].strip(), "green"), (" in the last hour", "dim")]
    return [*line, ("   ", ""), (busy, "" if workers["alive"] else "yellow")]
