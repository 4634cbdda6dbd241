"""A form to enqueue a job by hand, made of the task's typed signature; or from the args of another job, to clone it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast
from uuid import UUID

from starlette.responses import Response

from stepwell.errors import CodecError, no_such_job
from stepwell.errors.text import quoted
from stepwell.jobs.task import Task
from stepwell.web.forms import Field, fields_of
from stepwell.web.own_settings import OwnSettings, own_settings
from stepwell.web.reads import jobs
from stepwell.web.values import opened
from stepwell.web.visit import Refused, Visit


async def show(visit: Visit) -> Response:
    if not visit.may("enqueue"):
        raise Refused(403, f"{visit.user.name} may not enqueue jobs: it needs the right 'enqueue'")
    task = task_named(visit, visit.request.query_params.get("task", ""))
    like = visit.request.query_params.get("like")
    job = await job_like(visit, like) if like else None
    if job is None:
        return form_page(visit, task, fields_of(task), {})
    options = {name: str(job[name]) for name in ("queue", "priority") if job[name] != getattr(task, name)}
    metadata, hidden_metadata = _shown_fields(visit, job["metadata"])
    if metadata:
        options["metadata"] = json.dumps(metadata, ensure_ascii=False)
    args, hidden = _shown_fields(visit, job["args"])
    fields = fields_of(task, args)
    unknown = set(args) - {field.name for field in fields}
    notes = [*_note(hidden, "hidden here"), *_note(hidden_metadata, "hidden here", "metadata ")]
    notes += _note(unknown, "no argument of the task any more")
    if job["args"] is None:
        notes.append("Its arguments are too large to be copied here.")
    return form_page(visit, task, fields, options, own=own_settings(job, task), cloned=str(job["id"]), notes=notes)


def _note(names: Iterable[str], why: str, kind: str = "") -> list[str]:
    return [f"Not copied: {kind}{name}, which is {why}." for name in sorted(names)]


async def job_like(visit: Visit, like: str) -> dict[str, Any]:
    """The job to copy from."""
    try:
        found = await visit.read(jobs.job(UUID(like)))
    except ValueError:
        raise Refused(400, f"like is {quoted(like)}: it must be the id of a job") from None
    if found is None:
        raise no_such_job(like)
    return found


def _shown_fields(visit: Visit, text: str | None) -> tuple[dict[str, Any], list[str]]:
    """The fields of an object that are not hidden, and the names of the others. Those are not copied: they would be
    shown."""
    redaction = visit.dashboard.redaction
    try:
        found = opened(text, redaction.sealer)
    except CodecError as error:
        raise Refused(409, f"the job cannot be cloned here: {error}") from None
    if not isinstance(found, dict):
        return {}, []
    fields = cast("dict[str, Any]", found)
    hidden = [name for name, value in fields.items() if redaction.touches({name: value})]
    return {name: value for name, value in fields.items() if name not in hidden}, hidden


def task_named(visit: Visit, name: str) -> Task[..., Any]:
    task = visit.app.tasks.get(name)
    if task is None:
        raise Refused(404, f"this app has no task {quoted(name)}: enqueue it where its code is")
    return task


def form_page(
    visit: Visit,
    task: Task[..., Any],
    fields: list[Field],
    options: dict[str, str],
    problem: str | None = None,
    *,
    own: OwnSettings | None = None,
    cloned: str | None = None,
    notes: Sequence[str] = (),
) -> Response:
    """The form. `own` are settings of the job that is cloned, and `notes` say what is not copied from it."""
    data: dict[str, Any] = {
        "task": task.name,
        "fields": [
            {"name": field.name, "type": field.type, "required": field.required, "json": field.outline or None}
            for field in fields
        ],
        "error": problem,
    }
    return visit.page(
        "new_job.html",
        data,
        400 if problem else 200,
        form=fields,
        options=options,
        problem=problem,
        known=task,
        own=own,
        cloned=cloned,
        notes=notes,
    )
