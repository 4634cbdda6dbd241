"""Enqueue a job by hand, from a form or from JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from stepwell.errors import StepwellError
from stepwell.errors.text import quoted
from stepwell.jobs.handle import JobHandle
from stepwell.jobs.task import Task
from stepwell.postgres.acting import Actor, record_of
from stepwell.postgres.fetch import afetch
from stepwell.postgres.queries.query import Act
from stepwell.web.acts.form_fields import one
from stepwell.web.forms import arguments_from, fields_of, filled
from stepwell.web.own_settings import own_settings
from stepwell.web.pages.new_job import form_page, job_like, task_named
from stepwell.web.visit import Refused, Visit
from stepwell.web.wording import brief

OPTIONS = ("queue", "priority", "delay", "metadata")


async def enqueue(visit: Visit) -> Response:
    form = await visit.form()
    task = task_named(visit, one(form, "task"))
    fields = fields_of(task)
    options = {name: form[name][0] for name in OPTIONS if form.get(name, [""])[0]}
    like = next(iter(form.get("like") or ()), "")
    own = own_settings(await job_like(visit, like), task) if like else None
    try:
        args, kwargs = task.codec.call_with(arguments_from(fields, form))
        given = {**(own.options if own else {}), **_read_options(options)}
        job = await _enqueue(visit, task, given, args, kwargs)
    except StepwellError as error:
        return form_page(visit, task, filled(fields, form), options, brief(error), own=own)
    if not job.inserted:
        return visit.done(
            "The job was there already: it has the same unique key.", f"/jobs/{job.id}", {"job": str(job.id)}
        )
    return visit.done("The job was enqueued.", f"/jobs/{job.id}", {"job": str(job.id)})


async def _enqueue(
    visit: Visit, task: Task[..., Any], options: dict[str, Any], args: Any, kwargs: Any
) -> JobHandle[Any]:
    """Enqueue the job, and record that in the same transaction."""
    async with visit.app.database.aconnection() as connection, connection.transaction():
        job = await task.using(**options, connection=connection).aenqueue(*args, **kwargs)
        act = Act("enqueue", f"job {job.id} of task {task.name}")
        await afetch(connection, record_of(Actor(visit.user.name, "web"), act, [job.inserted]))
    return job


def _read_options(typed: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = dict(typed)
    if "priority" in typed:
        try:
            options["priority"] = int(typed["priority"])
        except ValueError:
            raise Refused(400, f"priority is {quoted(typed['priority'])}: it must be a whole number") from None
    if "metadata" in typed:
        try:
            options["metadata"] = json.loads(typed["metadata"])
        except (ValueError, RecursionError):
            raise Refused(400, "metadata is not a JSON object") from None
    return options
