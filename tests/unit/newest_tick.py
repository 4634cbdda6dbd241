"""The newest tick of a time span, as catching up asks for it."""

from __future__ import annotations

from datetime import datetime

from stepwell.calendar.timing import Timing, ticks


def latest(timing: Timing, after: datetime, until: datetime) -> datetime | None:
    """The newest tick after `after` up to and with `until`."""
    found = ticks(timing, after, until, 1)
    return found[0] if found else None
