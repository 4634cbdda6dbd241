"""Limits and rates by key: who holds them, and who waits."""

from __future__ import annotations

from starlette.responses import Response

from stepwell.web.filters import asked_limit
from stepwell.web.reads import fleet
from stepwell.web.visit import Visit

_PAGE = 50


async def show(visit: Visit) -> Response:
    limit = asked_limit(visit.request.query_params, _PAGE, 200)
    found = await visit.read(fleet.limits(visit.asked("after"), limit))
    return visit.page("limits.html", found, next_url=found["next"] and visit.url("/limits", after=found["next"]))
