"""Jobs in a FastAPI site: start one, watch it in the browser. Run it with `uvicorn examples.fastapi_app:site`.

The worker runs in the same process, which is enough for a small site. For more, leave out `worker=` and start
`stepwell worker examples.fastapi_app:jobs` as often as needed.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.responses import HTMLResponse, StreamingResponse

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


site = FastAPI(lifespan=lifespan(jobs, worker=Worker))


async def found_job(job_id: UUID) -> JobHandle[Any]:
    """A real site also checks here that the user may see this job: an id is no secret."""
    job = jobs.job(job_id)
    if not await job.aexists():
        raise HTTPException(404)
    return job


FoundJob = Annotated[JobHandle[Any], Depends(found_job)]


@site.post("/render", status_code=202)
async def begin(pages: int) -> dict[str, str]:
    job = await render.aenqueue(pages)
    return {"id": str(job.id)}


@site.get("/jobs/{job_id}")
async def look(job: FoundJob) -> dict[str, Any]:
    info = await job.ainfo()
    assert info is not None
    return {"state": info.state, "progress": info.progress, "result": info.result}


@site.get("/jobs/{job_id}/events")
async def watch(job: FoundJob, last_event_id: Annotated[str | None, Header()] = None) -> StreamingResponse:
    return StreamingResponse(EventStream(job, last_event_id), media_type="text/event-stream", headers=HEADERS)


@site.get("/")
async def page() -> HTMLResponse:
    return HTMLResponse(PAGE)


PAGE = """<!doctype html><title>Render</title>
<button>Render 10 pages</button> <progress value="0"></progress> <output></output>
<script type="module">
  document.querySelector("button").onclick = async () => {
    const { id } = await (await fetch("/render?pages=10", { method: "POST" })).json();
    const events = new EventSource(`/jobs/${id}/events`);
    const show = ({ data }) => {
      const { state, progress, result } = JSON.parse(data);
      if (progress) Object.assign(document.querySelector("progress"), { max: progress.total, value: progress.done });
      document.querySelector("output").value = result ?? state;
    };
    events.addEventListener("change", show);
    events.addEventListener("end", (event) => { events.close(); show(event); });
  };
</script>"""
