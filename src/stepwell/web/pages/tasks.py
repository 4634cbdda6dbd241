"""Tasks: those of this app and those that others on the database have, how their runs end, and the settings of one."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from stepwell.jobs.settings import settings_of
from stepwell.jobs.task import Task
from stepwell.postgres import queries
from stepwell.values.bounds import check_name
from stepwell.values.setting import Setting
from stepwell.values.setting_text import text_of
from stepwell.web.filters import asked_limit
from stepwell.web.ranges import chosen, spark_of, stats_of
from stepwell.web.reads import fleet
from stepwell.web.visit import Refused, Visit

_PAGE = 500
_EMPTY: dict[str, Any] = {
    "workers": 0,
    "stats": None,
    "paused_at": None,
    "queue": None,
    "max_attempts": None,
    "timeout": None,
    "maintainer": None,
    "runbook": None,
}


async def show(visit: Visit) -> Response:
    name = visit.request.query_params.get("name")
    if name is not None:
        return await _one(visit, check_name(name, "name"))
    span, after = chosen(visit), visit.asked("after")
    limit = asked_limit(visit.request.query_params, _PAGE, 1000)
    answer = await visit.read(fleet.tasks(span.name, after, limit))
    found, further = {task["name"]: task for task in answer["tasks"]}, answer["next"]
    own = [one for one in visit.app.tasks if one > (after or "") and (further is None or one <= further)]
    names = sorted({*found, *own})
    if len(names) > limit:
        # Tasks that only this process knows stand between the others.
        names, further = names[:limit], names[limit - 1]
    tasks = [_listed(one, found.get(one, {}), visit.app.tasks.get(one)) for one in names]
    tasks = [{**task, "stats": stats_of(task, span, visit.pulse["now"])} for task in tasks]
    sparks = {task["name"]: spark_of(task["stats"], span) for task in tasks}
    return visit.page(
        "tasks.html",
        {"tasks": tasks, "range": span.name, "next": further},
        span=span,
        sparks=sparks,
        first_url=visit.url("/tasks", range=span.name) if after else None,
        next_url=further and visit.url("/tasks", after=further, range=span.name),
    )


async def _one(visit: Visit, name: str) -> Response:
    """One task: whether it is paused, its settings, and where each value comes from."""
    known = visit.app.tasks.get(name)
    found = await visit.app.database.afetch(fleet.settings(name))
    registered = bool(found)
    if not found and known is not None:
        # No worker runs. This process has the same code, it hopes.
        in_code = msgspec.json.encode(settings_of(known)).decode()
        found = await visit.app.database.afetch(fleet.settings(name, in_code))
    if not found and known is None:
        raise Refused(404, f"no live worker says what settings the task {name!r} has: start one")
    settings = [{**msgspec.structs.asdict(setting), "text": text_of(setting)} for setting in found]
    pauses = await visit.app.database.afetch(queries.fleet.pauses())
    paused_at = next((pause.asked_at for pause in pauses if pause.scope == "task" and pause.name == name), None)
    data = {"name": name, "paused_at": paused_at, "settings": settings, "registered": registered}
    return visit.page("task.html", data, by_name=_by_name(found), known=known)


def _by_name(settings: list[Setting]) -> dict[str, Any]:
    return {setting.name: setting.value for setting in settings}


def _listed(name: str, found: dict[str, Any], known: Task[..., Any] | None) -> dict[str, Any]:
    task = {**_EMPTY, **found, "name": name, "arguments": None, "alias_of": None, "kind": None}
    if known is not None:
        # What a live worker has registered comes first: it is what runs.
        own = {
            "queue": known.queue,
            "max_attempts": known.retry.max_attempts,
            "timeout": known.timeout,
            "maintainer": known.maintainer,
            "runbook": known.runbook,
        }
        task |= {option: value for option, value in own.items() if task[option] is None}
        task |= {"arguments": known.codec.describe(), "alias_of": known.alias_of, "kind": known.kind}
    return task
