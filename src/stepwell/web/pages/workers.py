"""Workers: what each of them runs, the last registered first."""

from __future__ import annotations

from starlette.responses import Response

from stepwell.web.filters import asked_number
from stepwell.web.reads import fleet
from stepwell.web.visit import Visit


async def show(visit: Visit) -> Response:
    before = asked_number(visit.request.query_params, "before", 2**31 - 1)
    found = await visit.read(fleet.workers(before))
    return visit.page(
        "workers.html",
        found,
        first_url=visit.url("/workers") if before else None,
        next_url=found["next"] and visit.url("/workers", before=found["next"]),
    )
