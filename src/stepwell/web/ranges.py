"""The ranges of time that charts show, as `?range=` names them, and the runs that are counted within one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from stepwell.errors.text import quoted
from stepwell.web.charts import Bars, bars
from stepwell.web.visit import Refused, Visit
from stepwell.web.wording import to_time

_EMPTY: dict[str, Any] = {
    "enqueued": 0,
    "succeeded": 0,
    "failed": 0,
    "cancelled": 0,
    "ended": 0,
    "seconds": 0.0,
    "waited": None,
    "ran": None,
}


@dataclass(frozen=True, slots=True)
class Range:
    """A range of time. stepwell.stat_range knows it, too: it has the points of sparklines from there."""

    name: str
    label: str
    spark_points: int
    spark_seconds: int

    def seconds(self, now: Any) -> float:
        """How much time the numbers of queues and tasks are about: the last point of a sparkline is not over yet."""
        at = to_time(now)
        return (self.spark_points - 1) * self.spark_seconds + (at.timestamp() if at else 0.0) % self.spark_seconds


RANGES = {
    each.name: each
    for each in (
        Range("15m", "15 minutes", 15, 60),
        Range("1h", "hour", 12, 300),
        Range("6h", "6 hours", 12, 1800),
        Range("1d", "day", 24, 3600),
        Range("7d", "7 days", 28, 21600),
    )
}


def chosen(visit: Visit) -> Range:
    """The range in the URL, or an hour."""
    name = visit.request.query_params.get("range", "1h")
    if name not in RANGES:
        raise Refused(400, f"range is {quoted(name)}: it must be one of {', '.join(RANGES)}")
    return RANGES[name]


def stats_of(found: dict[str, Any], span: Range, now: Any) -> dict[str, Any]:
    """The runs of a queue or task, with its rate per second. Nothing was counted: zeros."""
    stats: dict[str, Any] = {**_EMPTY, "points": [], **(found["stats"] or {})}
    return {**stats, "rate": stats["ended"] / max(span.seconds(now), 1.0)}


def spark_of(stats: dict[str, Any], span: Range) -> Bars | None:
    if not stats["points"]:
        return None
    by_place = {place: (good, bad) for place, good, bad in stats["points"]}
    return bars([by_place.get(place, (0, 0)) for place in range(span.spark_points)], 84, 18)


def filled(chart: dict[str, Any]) -> dict[str, Any]:
    """A chart with all its points, the oldest first. SQL leaves out those at which nothing was counted."""
    step = chart["point_seconds"]
    start = datetime.fromisoformat(chart["since"]).timestamp()
    found = {round((datetime.fromisoformat(each["at"]).timestamp() - start) / step): each for each in chart["found"]}
    points = [{**_EMPTY, **found.get(place, {}), "at": _text(start + place * step)} for place in range(chart["points"])]
    rest = {name: value for name, value in chart.items() if name != "found"}
    return {**rest, "total": {**_EMPTY, **chart["total"], "at": chart["since"]}, "points": points}


def _text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
