"""Schedules: when they run, in words, with their next and last runs."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from stepwell.calendar.cron_words import in_words
from stepwell.calendar.schedule import following, to_timing
from stepwell.errors import ConfigError
from stepwell.web.filters import asked_limit
from stepwell.web.reads import fleet
from stepwell.web.values import shown
from stepwell.web.visit import Visit
from stepwell.web.wording import to_time

_PAGE = 200


async def show(visit: Visit) -> Response:
    owner, name = visit.asked("owner"), visit.asked("name")
    after = visit.asked("after_owner"), visit.asked("after")
    limit = asked_limit(visit.request.query_params, _PAGE, 1000)
    found = await visit.read(fleet.schedules(owner, name, 50 if name else 10, after, limit))
    for schedule in found["schedules"]:
        schedule["args"] = shown(schedule["args"], visit.dashboard.redaction)
        schedule["words"] = in_words(schedule["cron"], schedule["every"])
        schedule["next_runs"] = _next(schedule, visit.pulse["now"])
    further = found["next"]
    return visit.page(
        "schedules.html",
        found,
        name=name,
        first_url=visit.url("/schedules", owner=owner, name=name) if any(after) else None,
        next_url=further
        and visit.url("/schedules", owner=owner, name=name, after_owner=further["owner"], after=further["name"]),
    )


def _next(schedule: dict[str, Any], now: Any) -> list[str]:
    """The next three runs. A time zone that this machine does not know has none to show."""
    at = to_time(now)
    if at is None or schedule["paused_at"]:
        return []
    try:
        timing = to_timing(schedule["cron"], schedule["tz"], schedule["every"])
        return [tick.isoformat() for tick in following(timing, at, 3)]
    except ConfigError:
        return []
