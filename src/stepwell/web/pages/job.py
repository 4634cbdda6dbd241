"""One job: its times, attempts, values, steps and children, and why it waits."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from starlette.responses import Response

from stepwell.errors import CodecError, no_such_job
from stepwell.errors.text import quoted
from stepwell.web.filters import asked_limit
from stepwell.web.pages import logs as log_pages
from stepwell.web.reads import jobs
from stepwell.web.timeline import phases_of
from stepwell.web.values import cut, opened, shown
from stepwell.web.visit import Refused, Visit
from stepwell.web.waterfall import waterfall

STEPS = 100
CHILDREN = 50


async def show(visit: Visit) -> Response:
    job_id: UUID = visit.request.path_params["id"]
    job = await _job(visit, job_id)
    redaction = visit.dashboard.redaction
    try:
        hidden, sealed = redaction.touches(opened(job["args"], redaction.sealer)), False
    except CodecError:
        hidden, sealed = False, True
    for name in ("args", "metadata", "result", "progress", "policy"):
        job[name] = shown(job[name], redaction)
    why = await visit.app.job(job_id).awhy() if job["finished_at"] is None else None
    data = {**job, "why": why and {"cause": why.cause, "subject": why.subject, "next_act": why.next_act}}
    if visit.wants_json:
        return visit.page("job.html", data)
    steps = await _steps(visit, job_id, 0) if job["steps"] else []
    children = await visit.read(jobs.children(job_id, 0, CHILDREN)) if job["steps"] else []
    logged = await log_pages.first_page(visit, job_id) if job["log_lines"] else {}
    return visit.page(
        "job.html",
        data,
        cause=why,
        phases=phases_of(job, visit.pulse["now"]),
        step_rows=waterfall(steps, visit.pulse["now"], finished=job["finished_at"] is not None),
        more_steps=STEPS if job["steps"] > STEPS else None,
        children=children,
        more_children=CHILDREN if len(children) == CHILDREN else None,
        known=visit.app.tasks.get(job["task"]),
        hidden=hidden,
        sealed=sealed,
        **logged,
        awaited=next((step["event"] for step in steps if step["pending"] and step["kind"] == "receive"), None),
    )


async def steps(visit: Visit) -> Response:
    """A further window of steps."""
    job_id: UUID = visit.request.path_params["id"]
    offset, limit = _offset(visit), asked_limit(visit.request.query_params, STEPS, STEPS)
    job = await _job(visit, job_id)
    found = await _steps(visit, job_id, offset, limit)
    rows = waterfall(found, visit.pulse["now"], finished=job["finished_at"] is not None)
    after = offset + limit
    data = {"id": str(job_id), "steps": found, "next": after if after < job["steps"] else None}
    return visit.fragment("steps.html", data, step_rows=rows, more_steps=data["next"], state=job["state"], kept=True)


async def children(visit: Visit) -> Response:
    """A further window of children, or the children of a child."""
    job_id: UUID = visit.request.path_params["id"]
    offset, limit = _offset(visit), asked_limit(visit.request.query_params, CHILDREN, CHILDREN)
    found = await visit.read(jobs.children(job_id, offset, limit))
    after = offset + len(found) if len(found) == limit else None
    data = {"id": str(job_id), "children": found, "next": after}
    return visit.fragment("children.html", data, more_children=after, kept=True)


async def _job(visit: Visit, job_id: UUID) -> dict[str, Any]:
    job = await visit.read(jobs.job(job_id))
    if job is None:
        raise no_such_job(job_id)
    return job


async def _steps(visit: Visit, job_id: UUID, offset: int, limit: int = STEPS) -> list[dict[str, Any]]:
    found = await visit.read(jobs.steps(job_id, offset, limit))
    for step in found:
        step["value"] = cut(step["value"], step["value_size"], visit.dashboard.redaction)
    return found


def _offset(visit: Visit) -> int:
    given = visit.request.query_params.get("offset", "0")
    if not (given.isascii() and given.isdecimal() and len(given) < 9):
        raise Refused(400, f"offset is {quoted(given)}: it must be a number")
    return int(given)
