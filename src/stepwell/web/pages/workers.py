"""Workers: what each of them runs, the last registered first."""

from __future__ import annotations

from starlette.responses import Response

from stepwell.web.filters import asked_limit, asked_number
from stepwell.web.reads import fleet
from stepwell.web.visit import Visit

_PAGE = 100


async def show(visit: Visit) -> Response:
    before = asked_number(visit.request.query_params, "before", 2**31 - 1)
    limit = asked_limit(visit.request.query_params, _PAGE, 1000)
    found = await visit.read(fleet.workers(before, limit))
    return visit.page(
        "workers.html",
        found,
        first_url=visit.url("/workers") if before else None,
        next_url=found["next"] and visit.url("/workers", before=found["next"]),
    )
