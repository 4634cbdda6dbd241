"""Ask the worker of a running job for the stack of its handler."""

from __future__ import annotations

from uuid import UUID

from starlette.responses import Response

from stepwell.jobs.stack import astack_of
from stepwell.web.visit import Visit


async def stack(visit: Visit) -> Response:
    """Show the stack. The right to look is enough: it shows no more than a traceback."""
    job_id: UUID = visit.request.path_params["id"]
    found = await astack_of(job_id, visit.app.database)
    data = {"id": str(job_id), "found": found.found, "text": found.text, "worker": found.worker}
    if visit.request.headers.get("hx-request") == "true":
        return visit.fragment("stack.html", data)
    return visit.page("stack_page.html", data)
