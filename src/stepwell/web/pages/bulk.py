"""Bulk operations: what one would change, before it is confirmed; how far one has come; and all of them."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from starlette.responses import Response

from stepwell.errors import ConfigError
from stepwell.errors.text import quoted
from stepwell.postgres import queries
from stepwell.postgres.queries.bulk import BulkAct
from stepwell.web.filters import asked_limit, read_filters, to_uuid
from stepwell.web.reads import bulk
from stepwell.web.values import SHORT, shown
from stepwell.web.visit import Refused, Visit, inside

# A worker works on it every second or so. After this time there seems to be none that can.
_IDLE = 15.0
_PAGE = 200
TYPED = ("cancel", "delete")
"""What cannot be undone is confirmed by typing the number of jobs."""


async def preview(visit: Visit) -> Response:
    """How many jobs an act would change, with some of them, and the form that confirms it."""
    query = visit.request.query_params
    act = query.get("act", "")
    right = cast("BulkAct", act)
    if act not in bulk.STATES:
        raise Refused(400, f"act is {quoted(act)}: it must be one of {', '.join(bulk.STATES)}")
    if not visit.may(right):
        raise Refused(403, f"{visit.user.name} may not do this here: it needs the right {right!r}")
    filters = read_filters(query, visit.pulse["now"], visit.dashboard.redaction)
    found = await visit.read(queries.bulk.preview(act, bulk.filter_of(filters.search)))
    for job in found["examples"]:
        job["args"] = shown(job["args"], visit.dashboard.redaction, SHORT)
    # "Since 2h" means the same when the form is sent.
    times = {"since": filters.search.after, "until": filters.search.until}
    fields = {**filters.given, **{name: at.isoformat() for name, at in times.items() if at is not None}}
    return visit.page(
        "bulk_preview.html",
        found,
        fields=fields,
        given=filters.given,
        typed=act in TYPED,
        number=min(found["count"], 10_000),
        back=visit.url("/jobs", **filters.given).removeprefix(visit.root),
    )


async def show(visit: Visit) -> Response:
    """One operation and how far it has come."""
    bulk_id: UUID = visit.request.path_params["id"]
    found = await visit.read(bulk.bulks(bulk_id))
    if not found["bulks"]:
        raise Refused(404, f"there is no bulk operation {bulk_id}: they are kept for 30 days")
    operation = bulk.shown_bulk(found["bulks"][0], visit.dashboard.redaction)
    back = visit.request.query_params.get("back", "")
    return visit.page(
        "bulk.html",
        {**operation, "workers": found["workers"]},
        bulk=operation,
        left=_is_left(operation, found["workers"]),
        back=visit.root + inside(back) if back else visit.url("/jobs"),
    )


async def show_all(visit: Visit) -> Response:
    try:
        before = to_uuid(visit.request.query_params.get("before"), "before")
    except ConfigError as error:
        raise Refused(400, str(error)) from None
    limit = asked_limit(visit.request.query_params, _PAGE, 500)
    found = await visit.read(bulk.bulks(limit=limit, before=before))
    operations = [bulk.shown_bulk(each, visit.dashboard.redaction) for each in found["bulks"]]
    return visit.page(
        "bulks.html",
        {"bulks": operations, "workers": found["workers"], "next": found["next"]},
        first_url=visit.url("/bulk") if before else None,
        next_url=found["next"] and visit.url("/bulk", before=found["next"]),
    )


def _is_left(operation: dict[str, Any], workers: int) -> bool:
    """Whether it runs and nobody works on it."""
    return operation["state"] == "running" and (not workers or operation["idle"] > _IDLE)
