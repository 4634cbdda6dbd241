"""When a schedule is due, and how it catches up, in words."""

from __future__ import annotations

from stepwell.values.duration import describe


def said_timing(cron: str | None, tz: str | None, every: float | None) -> str:
    """The cron text and its time zone, or the interval."""
    return f"{cron} {tz}" if every is None else f"every {describe(every)}"


def said_catchup(catchup: int) -> str:
    """What becomes of missed ticks, as the code says it."""
    return {0: "skip", 1: "once"}.get(catchup, f"up to {catchup}")
