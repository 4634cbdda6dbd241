"""The first page: is it healthy now, and does something need a person?"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from stepwell.web.charts import Bars, Lines, bars, lines
from stepwell.web.notices import notices
from stepwell.web.ranges import chosen, filled
from stepwell.web.reads import fleet
from stepwell.web.visit import Visit


async def show(visit: Visit) -> Response:
    span = chosen(visit)
    found = await visit.read(fleet.overview(span.name))
    needed = list(notices(found, visit.pulse["now"]))
    chart = filled(found["chart"])
    data = {
        **found,
        "chart": chart,
        "oldest_ready": found["backlog"]["oldest"],
        "notices": [{"level": notice.level, "text": notice.text} for notice in needed],
    }
    return visit.page(
        "overview.html",
        data,
        span=span,
        shown_notices=[
            {"level": notice.level, "text": notice.text, "url": visit.url(notice.path, **notice.query)}
            for notice in needed
        ],
        throughput=_throughput(chart),
        times=[("Waiting time", "waited", _lines(chart, "waited")), ("Run time", "ran", _lines(chart, "ran"))],
    )


def _throughput(chart: dict[str, Any]) -> Bars:
    # Enqueued jobs are counted up to a minute later than runs, so the newest point of their line would be too low.
    enqueued = [point["enqueued"] for point in chart["points"]]
    hidden = 2 if chart["point_seconds"] == 60 else 1
    ended = [(point["ended"] - point["failed"], point["failed"]) for point in chart["points"]]
    return bars(ended, 600, 72, [*enqueued[:-hidden], *[None] * hidden])


def _lines(chart: dict[str, Any], which: str) -> Lines | None:
    return lines([point[which] for point in chart["points"]], 600, 96)
