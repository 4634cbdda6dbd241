"""Jobs in a Flask site: start one and watch it. Run `flask --app examples.flask_app run`, and in another terminal
`flask --app examples.flask_app stepwell worker`.
"""

from __future__ import annotations

import time
from uuid import UUID

from flask import Flask, Response, abort, current_app, jsonify, request

from stepwell import App, SyncContext
from stepwell.contrib.flask import Stepwell
from stepwell.contrib.sse import HEADERS, EventStream

jobs = App()
site = Flask(__name__)
site.config["STEPWELL_DATABASE_URL"] = "embedded"
site.config.from_prefixed_env()  # FLASK_STEPWELL_DATABASE_URL names another database
Stepwell(site, jobs)


@jobs.task
def render(ctx: SyncContext, pages: int) -> str:
    for page in range(pages):
        ctx.progress(page, pages, f"page {page + 1}")
        time.sleep(0.3)
    return f"{pages} pages of {current_app.name}"


@site.post("/render")
def begin() -> tuple[Response, int]:
    job = render.enqueue(int(request.args["pages"]))
    return jsonify(id=str(job.id)), 202


@site.get("/jobs/<uuid:job_id>/events")
def watch(job_id: UUID) -> Response:
    job = jobs.job(job_id)
    if not job.exists():
        abort(404)
    # Each browser that watches takes a thread of the server: for many, use an async one.
    events = EventStream(job, request.headers.get("Last-Event-ID"))
    return Response(iter(events), mimetype="text/event-stream", headers=HEADERS)
