"""Queues: their jobs by state, what they may run, who claims from them, and how their runs end. `?name=` shows one."""

from __future__ import annotations

from starlette.responses import Response

from stepwell.web.filters import asked_limit
from stepwell.web.ranges import chosen, spark_of, stats_of
from stepwell.web.reads import fleet
from stepwell.web.visit import Visit

_PAGE = 50


async def show(visit: Visit) -> Response:
    name, span = visit.asked("name"), chosen(visit)
    after, limit = visit.asked("after"), asked_limit(visit.request.query_params, _PAGE, 500)
    found = await visit.read(fleet.queue(span.name, name) if name else fleet.queues(span.name, after, limit))
    for queue in found["queues"]:
        queue["stats"] = stats_of(queue, span, visit.pulse["now"])
    return visit.page(
        "queues.html",
        {**found, "range": span.name},
        name=name,
        span=span,
        sparks={queue["name"]: spark_of(queue["stats"], span) for queue in found["queues"]},
        next_url=found["next"] and visit.url("/queues", after=found["next"], range=span.name),
    )
