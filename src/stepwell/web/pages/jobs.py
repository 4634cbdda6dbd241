"""The list of jobs: filtered, in order, page by page."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from stepwell.web.filters import SORTS, STATES, JobFilters, read_filters
from stepwell.web.pages.export import MOST
from stepwell.web.pages.saved_views import saved_views
from stepwell.web.reads import bulk, jobs
from stepwell.web.values import SHORT, shown
from stepwell.web.visit import Visit


async def show(visit: Visit) -> Response:
    filters = read_filters(visit.request.query_params, visit.pulse["now"], visit.dashboard.redaction)
    found = await visit.read(
        jobs.search(
            filters.search,
            filters.before,
            filters.limit,
            filters.milliseconds,
            oldest_first=filters.oldest_first,
            sort=filters.sorted_by,
            offset=filters.offset,
        )
    )
    for job in found["jobs"]:
        job["args"] = shown(job["args"], visit.dashboard.redaction, SHORT)
        job["progress"] = shown(job["progress"], visit.dashboard.redaction) if job["progress"] else None
    data = {**found, "next": found["looked_to"]}
    if visit.wants_json:
        return visit.page("jobs.html", data)
    names = await visit.read(jobs.names(filters.search.queue))
    running = await visit.read(bulk.bulks(running=True, limit=5))
    given = filters.given
    state = filters.search.state
    return visit.page(
        "jobs.html",
        data,
        filters=filters,
        given=given,
        states=STATES,
        sorts=SORTS,
        counts=names["states"],
        queues=names["queues"],
        tasks=sorted({*names["tasks"], *visit.app.tasks}),
        keys=names["keys"],
        arguments=_arguments(visit, filters.search.task),
        bulks=[bulk.shown_bulk(each, visit.dashboard.redaction) for each in running["bulks"]],
        acts=[act for act, states in bulk.STATES.items() if visit.may(act) and (state is None or state in states)],
        views=await saved_views(visit),
        most_exported=MOST,
        first_url=visit.url("/jobs", **given),
        next_url=visit.url("/jobs", **given, **_next_page(filters, found)),
        further_url=visit.url("/jobs", **given, **_further(filters, found), patience=1500),
    )


def _next_page(filters: JobFilters, found: dict[str, Any]) -> dict[str, Any]:
    """Where the next page begins. In an order by age, after the last job; in another, after a number of jobs."""
    if found["sorted"] is None:
        return {"before": found["looked_to"]}
    return {"before": filters.before, "offset": found["sorted"]["next"]}


def _further(filters: JobFilters, found: dict[str, Any]) -> dict[str, Any]:
    """Where a search goes on that has stopped early. In an order that an index has, it begins again, for longer."""
    if found["looked_to"] is None:
        return {"before": filters.before, "offset": filters.offset or None}
    return {"before": found["looked_to"]}


def _arguments(visit: Visit, task: str | None) -> list[str]:
    """The names of the arguments of a task of this app, for completion."""
    known = visit.app.tasks.get(task or "")
    names = [] if known is None else [name for name, _, _ in known.codec.typed_arguments()]
    return [name for name in names if not visit.dashboard.redaction.hides(name)]
