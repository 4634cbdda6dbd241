"""Acts on jobs: retry, cancel, run now, move, delete, send a signal, edit the args. Those on a selection take up to 500
ids; `bulk` is for all that match a filter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from starlette.responses import Response

from stepwell.errors import BadArgs, CodecError, ConfigError, JobNotFound, StepNotFound, StepwellError
from stepwell.errors.text import quoted
from stepwell.jobs.act_by_id import act_by_id
from stepwell.jobs.bulk import JobAct, cancelling, deleting, moving, retrying, running_now
from stepwell.postgres.query_plan import arun
from stepwell.web.acts.form_fields import back, one
from stepwell.web.filters import in_utc
from stepwell.web.forms import arguments_from, fields_of
from stepwell.web.reads import jobs as reads
from stepwell.web.values import opened
from stepwell.web.visit import Refused, Visit

_MOST = 500
# What became of one job, and of several.
_BECAME = {
    "retry": ("will run again", "will run again"),
    "run": ("will run now", "will run now"),
    "cancelled": ("is cancelled", "are cancelled"),
    "running": ("was asked to stop", "were asked to stop"),
    "deleted": ("is deleted", "are deleted"),
    "moved": ("is moved", "are moved"),
    "undoing": ("is cancelled, and its steps are being undone", "are cancelled, and their steps are being undone"),
}


async def retry(visit: Visit) -> Response:
    form = await visit.form()
    step = next(iter(form.get("step") or ()), "") or None
    from_start = bool(form.get("from_start"))
    if step and from_start:
        raise Refused(400, "a job starts over, or goes on at a step: choose one")
    return await _act(visit, form, retrying(step, from_start=from_start))


async def cancel(visit: Visit) -> Response:
    form = await visit.form()
    reason = next(iter(form.get("reason") or ()), "") or f"by {visit.user.name}, in the dashboard"
    return await _act(visit, form, cancelling(reason))


async def run(visit: Visit) -> Response:
    return await _act(visit, await visit.form(), running_now())


async def move(visit: Visit) -> Response:
    form = await visit.form()
    return await _act(visit, form, moving_to(form))


async def delete(visit: Visit) -> Response:
    form = await visit.form()
    if "id" in visit.request.path_params and not visit.wants_json:
        # The page of a job that is gone is no page to go back to.
        form["back"] = ["/jobs"]
    return await _act(visit, form, deleting())


def moving_to(form: Mapping[str, Sequence[str]]) -> JobAct:
    """The act that the fields `to` (a queue), `priority` and `run_at` of a form ask for."""
    to, priority, run_at = (next(iter(form.get(name) or ()), "") for name in ("to", "priority", "run_at"))
    # The name of a queue may begin or end with a space.
    priority, run_at = priority.strip(), run_at.strip()
    try:
        # A browser sends a time without its zone. Every time on the pages is in UTC.
        at = None if not run_at else in_utc(datetime.fromisoformat(run_at))
    except (ValueError, OverflowError):
        raise Refused(400, f"run_at is {quoted(run_at)}: write a time such as 2026-01-31T12:00") from None
    try:
        return moving(to or None, None if not priority else int(priority), at)
    except ConfigError as error:
        raise Refused(400, str(error)) from None
    except ValueError:
        raise Refused(400, f"priority is {priority[:50]!r}: it must be a whole number") from None


async def _act(visit: Visit, form: Mapping[str, Sequence[str]], act: JobAct) -> Response:
    ids = _ids(visit, form)
    changed = await arun(act_by_id(act, ids), visit.app.database)
    said: list[str] = []
    for became in dict.fromkeys(changed.became.values()):
        number = sum(1 for other in changed.became.values() if other == became)
        one_job, several = _BECAME.get(became) or _BECAME[act.verb]
        said.append(f"{_jobs(number, ids)} {one_job if number == 1 else several}")
    for job_id, why in list(changed.refused.items())[:3]:
        said.append(f"job {job_id} {why}" if len(ids) > 1 else f"The job {why}")
    if len(changed.refused) > 3:
        said.append(f"and {len(changed.refused) - 3} more were not changed")
    otherwise = f"/jobs/{ids[0]}" if "id" in visit.request.path_params else "/jobs"
    data = {"changed": changed.became, "refused": changed.refused}
    return visit.done("; ".join(said), back(form, otherwise), data, ok=bool(changed.became))


def _jobs(number: int, ids: Sequence[str]) -> str:
    return "The job" if len(ids) == 1 else "1 job" if number == 1 else f"{number} jobs"


def _ids(visit: Visit, form: Mapping[str, Sequence[str]]) -> list[str]:
    if "id" in visit.request.path_params:
        return [str(visit.request.path_params["id"])]
    try:
        ids = list(dict.fromkeys(str(UUID(given)) for given in form.get("id") or ()))
    except ValueError:
        raise Refused(400, "a selected id is not the id of a job") from None
    if not 1 <= len(ids) <= _MOST:
        raise Refused(400, f"{len(ids)} jobs are selected: select 1 to {_MOST}")
    return ids


async def signal(visit: Visit) -> Response:
    form = await visit.form()
    job_id = visit.request.path_params["id"]
    name, text = one(form, "name"), next(iter(form.get("value") or ()), "").strip()
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        raise Refused(400, f'the value of the signal is {quoted(text)}: write JSON, such as "yes" or 42') from None
    try:
        await visit.app.job(job_id).asend(name, value)
    except (JobNotFound, BadArgs, ConfigError) as error:
        return visit.done(str(error), back(form, f"/jobs/{job_id}"), ok=False)
    return visit.done(f"Signal {name} was sent.", back(form, f"/jobs/{job_id}"))


async def fork(visit: Visit) -> Response:
    """Make a new job from what this one had saved before a step."""
    form = await visit.form()
    job_id: UUID = visit.request.path_params["id"]
    try:
        forked = await visit.app.afork(job_id, step=one(form, "step"))
    except StepNotFound as error:
        return visit.done(str(error), back(form, f"/jobs/{job_id}"), ok=False)
    return visit.done(f"This job was forked from {job_id}.", f"/jobs/{forked.id}", {"job": str(forked.id)})


async def edit(visit: Visit) -> Response:
    """Replace the args. Those of a job with hidden fields cannot be edited here: the form does not have them."""
    form = await visit.form()
    job_id: UUID = visit.request.path_params["id"]
    found = await visit.read(reads.job(job_id))
    if found is None:
        raise Refused(404, f"there is no job {job_id}")
    redaction = visit.dashboard.redaction
    try:
        before = opened(found["args"], redaction.sealer)
    except CodecError as error:
        raise Refused(409, f"the args of this job cannot be edited here: {error}") from None
    if redaction.touches(before):
        raise Refused(403, "some args of this job are hidden here, so they cannot be edited here")
    try:
        args, kwargs = _new_args(visit, found["task"], form)
        edited = await visit.app.job(job_id).aedit_args(*args, **kwargs)
    except StepwellError as error:
        if isinstance(error, Refused):
            raise
        return visit.done(str(error), back(form, f"/jobs/{job_id}"), ok=False)
    if not edited:
        said = f"The args were not changed: the job is {found['state']}."
        return visit.done(said, back(form, f"/jobs/{job_id}"), ok=False)
    return visit.done("The args were changed.", back(form, f"/jobs/{job_id}"))


def _new_args(visit: Visit, name: str, form: Mapping[str, Sequence[str]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    task = visit.app.tasks.get(name)
    if task is None:
        raise Refused(409, f"this app has no task {quoted(name)}: edit the args where its code is")
    if "args" in form:
        try:
            given: Any = json.loads(one(form, "args"))
        except (ValueError, RecursionError):
            raise Refused(400, "args is not a JSON object") from None
        if not isinstance(given, dict):
            raise Refused(400, "args is not a JSON object")
    else:
        given = arguments_from(fields_of(task), {name: list(values) for name, values in form.items()})
    return task.codec.call_with(given)  # pyright: ignore[reportUnknownArgumentType]
