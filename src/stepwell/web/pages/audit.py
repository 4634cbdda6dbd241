"""The audit: who did what, newest first."""

from __future__ import annotations

from starlette.responses import Response

from stepwell.errors import ConfigError
from stepwell.jobs.filter import check_text
from stepwell.postgres import queries
from stepwell.web.filters import asked_limit, asked_number
from stepwell.web.visit import Refused, Visit

_PAGE = 50
_MOST = 2**63 - 1


async def show(visit: Visit) -> Response:
    query = visit.request.query_params
    # The name of a user may begin or end with a space.
    given = {name: query[name] for name in ("who", "act") if query.get(name)}
    try:
        for name, value in given.items():
            check_text(value, name)
    except ConfigError as error:
        raise Refused(400, str(error)) from None
    limit, before = asked_limit(query, _PAGE, 500), asked_number(query, "before", _MOST)
    found = await visit.read(queries.audit.acts(given.get("who"), given.get("act"), before, limit))
    return visit.page(
        "audit.html",
        found,
        given=given,
        first_url=visit.url("/audit", **given) if before else None,
        next_url=found["next"] and visit.url("/audit", **given, before=found["next"]),
    )
