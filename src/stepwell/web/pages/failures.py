"""Failures: attempts that failed alike, as groups; and one group with an example."""

from __future__ import annotations

from typing import Any, get_args

from starlette.responses import Response

from stepwell.errors import ConfigError
from stepwell.errors.text import quoted
from stepwell.jobs.filter import check_text
from stepwell.values.failure_info import FailureState
from stepwell.web.charts import bars
from stepwell.web.filters import asked_limit, to_uuid
from stepwell.web.reads import fleet
from stepwell.web.visit import Refused, Visit

STATES: tuple[str, ...] = (*get_args(FailureState), "all")
_PAGE = 50


async def show(visit: Visit) -> Response:
    query = visit.request.query_params
    # The name of a task may begin or end with a space.
    given = {name: query[name] for name in ("state", "task", "sort") if query.get(name)}
    state, sort = given.get("state", "open"), given.get("sort", "last")
    try:
        if state not in STATES:
            raise ConfigError(f"state is {quoted(state)}: it must be one of {', '.join(STATES)}")
        if sort not in ("last", "count"):
            raise ConfigError(f"sort is {quoted(sort)}: it must be last or count")
        task = check_text(given.get("task"), "task")
        after = to_uuid(query.get("after"), "after")
    except ConfigError as error:
        raise Refused(400, str(error)) from None
    limit = asked_limit(query, _PAGE, 200)
    found = await visit.read(fleet.failures(None if state == "all" else state, task, sort, after, limit))
    return visit.page(
        "failures.html",
        found,
        given=given,
        state=state,
        sort=sort,
        all_states=STATES,
        sparks={group["id"]: _spark(group["hours"]) for group in found["groups"]},
        next_url=visit.url("/failures", **given, after=found["next"]) if found["next"] else None,
    )


async def one(visit: Visit) -> Response:
    group = await visit.read(fleet.failure(visit.request.path_params["id"]))
    if group is None:
        raise Refused(404, "there is no such failure: it was last seen more than 90 days ago, or never")
    return visit.page("failure.html", group, spark=_spark(group["hours"], 480, 60))


def _spark(hours: list[int], width: int = 96, height: int = 20) -> Any:
    return bars([(0, count) for count in hours], width, height)
