"""Jobs in a Starlette site: start one and watch it. Run it with `uvicorn examples.starlette_app:site`."""

from __future__ import annotations

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from stepwell import App, ConfigError, Context, Worker
from stepwell.contrib.asgi import lifespan
from stepwell.contrib.sse import HEADERS, EventStream

jobs = App("embedded")


@jobs.task
async def render(ctx: Context, pages: int) -> str:
    for page in range(pages):
        ctx.progress(page, pages, f"page {page + 1}")
        await asyncio.sleep(0.3)
    return f"{pages} pages"


async def begin(request: Request) -> Response:
    job = await render.aenqueue(int(request.query_params["pages"]))
    return JSONResponse({"id": str(job.id)}, status_code=202)


async def watch(request: Request) -> Response:
    try:
        job = jobs.job(request.path_params["job_id"])
    except ConfigError:  # it is no uuid
        return Response(status_code=404)
    if not await job.aexists():
        return Response(status_code=404)
    events = EventStream(job, request.headers.get("last-event-id"))
    return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS)


site = Starlette(
    routes=[Route("/render", begin, methods=["POST"]), Route("/jobs/{job_id}/events", watch)],
    lifespan=lifespan(jobs, worker=Worker),
)
