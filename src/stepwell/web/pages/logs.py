"""The lines that the handler of a job has logged."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from starlette.responses import Response

from stepwell.errors import no_such_job
from stepwell.errors.text import quoted
from stepwell.postgres import queries
from stepwell.values.log_level import LEVELS, level_name
from stepwell.web.filters import asked_limit
from stepwell.web.visit import Refused, Visit

LINES = 100


async def show(visit: Visit) -> Response:
    """A page of lines, or those before it."""
    job_id: UUID = visit.request.path_params["id"]
    level, before, after = _level(visit), _line(visit, "before"), _line(visit, "after")
    limit = asked_limit(visit.request.query_params, LINES, LINES)
    found = await _read(visit, job_id, level, before, after, limit)
    older = _older(found, limit)
    data = {"id": str(job_id), "level": level, "lines": found["lines"], "next": older, "last": found["last"]}
    return visit.fragment("log_lines.html", data, **_shown(found, level, limit), kept=True)


async def first_page(visit: Visit, job_id: UUID) -> dict[str, Any]:
    """What the page of a job shows of its logs."""
    level = _level(visit)
    return _shown(await _read(visit, job_id, level, None, None, LINES), level, LINES)


def _shown(found: dict[str, Any], level: str, limit: int) -> dict[str, Any]:
    lines = [{**line, "level_name": level_name(line["level"])} for line in found["lines"]]
    return {
        "log": lines,
        "log_level": level,
        "levels": list(LEVELS),
        "older_lines": _older(found, limit),
        "cut_lines": (found["first"] or 1) - 1,
    }


def _older(found: dict[str, Any], limit: int) -> int | None:
    """The line before which there may be more; None: there are none."""
    lines = found["lines"]
    return lines[0]["line"] if len(lines) == limit and lines[0]["line"] > (found["first"] or 1) else None


async def _read(
    visit: Visit, job_id: UUID, level: str, before: int | None, after: int | None, limit: int
) -> dict[str, Any]:
    found = await visit.read(queries.logs.job_logs(job_id, LEVELS[level], before, after, limit))
    if found is None:
        raise no_such_job(job_id)
    return found


def _level(visit: Visit) -> str:
    given = visit.request.query_params.get("level", "debug").lower()
    if given not in LEVELS:
        raise Refused(400, f"level is {quoted(given)}: it must be one of {', '.join(LEVELS)}")
    return given


def _line(visit: Visit, name: str) -> int | None:
    given = visit.request.query_params.get(name)
    if given is None:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) < 10):
        raise Refused(400, f"{name} is {quoted(given)}: it must be the number of a line")
    return int(given)
