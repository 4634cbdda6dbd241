"""The saved views of the list of jobs."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import QueryParams
from starlette.responses import Response

from stepwell.web.filters import NAMES, read_filters
from stepwell.web.reads import jobs
from stepwell.web.visit import Refused, Visit


async def show(visit: Visit) -> Response:
    return visit.page("saved_views.html", {"views": await saved_views(visit)})


async def saved_views(visit: Visit) -> list[dict[str, Any]]:
    """The views that can be shown here, each with its URL. Another dashboard may have saved a filter by a field that
    this one hides: such a view is left out, because its value must not be seen."""
    found = await visit.read(jobs.saved_views())
    shown = [view for view in found["views"] if _is_shown(visit, view["filters"])]
    for view in shown:
        # In the order of the form, which jsonb does not keep.
        view["filters"] = {name: view["filters"][name] for name in NAMES if name in view["filters"]}
        view["url"] = visit.url("/jobs", **view["filters"])
    return shown


def _is_shown(visit: Visit, filters: dict[str, str]) -> bool:
    try:
        read_filters(QueryParams(filters), visit.pulse["now"], visit.dashboard.redaction)
    except Refused:
        return False
    return set(filters) <= set(NAMES)
