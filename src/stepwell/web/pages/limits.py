"""Limits and rates by key: who holds them, and who waits."""

from __future__ import annotations

from starlette.responses import Response

from stepwell.web.reads import fleet
from stepwell.web.visit import Visit


async def show(visit: Visit) -> Response:
    found = await visit.read(fleet.limits(visit.asked("after")))
    return visit.page("limits.html", found, next_url=found["next"] and visit.url("/limits", after=found["next"]))
