"""Acts on queues, tasks and workers: pause, resume, and stop."""

from __future__ import annotations

from starlette.responses import Response

from stepwell.postgres import queries
from stepwell.web.acts.form_fields import back, one
from stepwell.web.visit import Visit


async def pause_queue(visit: Visit) -> Response:
    form = await visit.form()
    queue = one(form, "queue")
    await visit.app.apause(queue)
    return visit.done(f"Queue {queue} is paused. Running jobs go on.", back(form, "/queues"))


async def resume_queue(visit: Visit) -> Response:
    form = await visit.form()
    queue = one(form, "queue")
    resumed = await visit.app.aresume(queue)
    return visit.done(
        f"Queue {queue} is resumed." if resumed else f"Queue {queue} was not paused.", back(form, "/queues"), ok=resumed
    )


async def pause_everything(visit: Visit) -> Response:
    form = await visit.form()
    await visit.app.apause(everything=True)
    return visit.done("Everything is paused. Running jobs go on.", back(form, "/queues"))


async def resume_everything(visit: Visit) -> Response:
    """End the pause of everything. What was paused by itself stays paused."""
    form = await visit.form()
    resumed = await visit.app.aresume(everything=True)
    said = "Everything is resumed. Queues that were paused by themselves stay paused."
    return visit.done(said if resumed else "There was no pause of everything.", back(form, "/queues"), ok=resumed)


async def pause_task(visit: Visit) -> Response:
    form = await visit.form()
    task = one(form, "task")
    await visit.app.apause(task=task)
    return visit.done(f"Task {task} is paused. Running jobs go on.", back(form, "/tasks"))


async def resume_task(visit: Visit) -> Response:
    form = await visit.form()
    task = one(form, "task")
    resumed = await visit.app.aresume(task=task)
    return visit.done(
        f"Task {task} is resumed." if resumed else f"Task {task} was not paused.", back(form, "/tasks"), ok=resumed
    )


async def quiet_worker(visit: Visit) -> Response:
    form = await visit.form()
    await visit.app.apause(worker=one(form, "worker"))
    return visit.done("The worker claims no more jobs. Those that it runs go on.", back(form, "/workers"))


async def resume_worker(visit: Visit) -> Response:
    form = await visit.form()
    resumed = await visit.app.aresume(worker=one(form, "worker"))
    if resumed:
        said = "The worker claims jobs again."
    elif any(pause.scope == "everything" for pause in await visit.app.database.afetch(queries.fleet.pauses())):
        said = "This worker has no pause of its own; everything is paused."
    else:
        said = "The worker was not paused."
    return visit.done(said, back(form, "/workers"), ok=resumed)


async def stop_worker(visit: Visit) -> Response:
    form = await visit.form()
    asked = await visit.app.astop(worker=one(form, "worker"))
    said = "The worker was asked to finish its jobs and stop." if asked else "There is no such worker."
    return visit.done(said, back(form, "/workers"), ok=bool(asked))
