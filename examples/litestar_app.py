"""Jobs in a Litestar site: start one and watch it. Run it with `uvicorn examples.litestar_app:site`."""

import asyncio
from typing import Any
from uuid import UUID

from litestar import Litestar, Request, get, post
from litestar.di import NamedDependency, Provide
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, FromQuery
from litestar.response import Stream

from stepwell import App, Context, JobHandle, Worker
from stepwell.contrib.asgi import lifespan
from stepwell.contrib.sse import HEADERS, EventStream

jobs = App("embedded")


@jobs.task
async def render(ctx: Context, pages: int) -> str:
    for page in range(pages):
        ctx.progress(page, pages, f"page {page + 1}")
        await asyncio.sleep(0.3)
    return f"{pages} pages"


async def found_job(job_id: FromPath[UUID]) -> JobHandle[Any]:
    job = jobs.job(job_id)
    if not await job.aexists():
        raise NotFoundException
    return job


@post("/render", status_code=202)
async def begin(pages: FromQuery[int]) -> dict[str, str]:
    job = await render.aenqueue(pages)
    return {"id": str(job.id)}


@get("/jobs/{job_id:uuid}/events", dependencies={"job": Provide(found_job)})
async def watch(job: NamedDependency[JobHandle[Any]], request: Request[Any, Any, Any]) -> Stream:
    events = EventStream(job, request.headers.get("last-event-id"))
    return Stream(events, media_type="text/event-stream", headers=HEADERS)


site = Litestar([begin, watch], lifespan=[lifespan(jobs, worker=Worker)])
