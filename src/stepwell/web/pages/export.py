"""All jobs that a filter matches, as a file of CSV or JSON: read in pages and sent as they are read."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

from starlette.responses import Response, StreamingResponse

from stepwell.errors.text import quoted
from stepwell.web.filters import JobFilters, read_filters
from stepwell.web.reads import bulk
from stepwell.web.reads.jobs import search
from stepwell.web.sendable import sendable, to_json
from stepwell.web.values import shown
from stepwell.web.visit import Refused, Visit

MOST = 100_000
"""How many jobs a file has at most."""
_PAGE = 200
LONGEST = 120.0
"""For how many seconds jobs are read for a file."""
# Milliseconds for one look.
_PATIENCE = 500
_COLUMNS = (
    "id", "state", "task", "queue", "priority", "attempt", "max_attempts", "owner", "enqueued_at", "run_at",
    "claimed_at", "finished_at", "worker_id", "error", "args", "metadata", "result",
)  # fmt: skip
_JSON_COLUMNS = ("args", "metadata", "result")
# A spreadsheet reads a cell that begins with one of these as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")

Jobs = AsyncGenerator[tuple[list[dict[str, Any]], bool]]


async def export(visit: Visit) -> Response:
    query = visit.request.query_params
    filters = read_filters(query, visit.pulse["now"], visit.dashboard.redaction)
    formats: dict[str, tuple[str, Callable[[Jobs], AsyncGenerator[str]]]] = {
        "csv": ("text/csv", _csv),
        "json": ("application/json", _json),
    }
    chosen = query.get("format", "json")
    if chosen not in formats:
        raise Refused(400, f"format is {quoted(chosen)}: it must be csv or json")
    media_type, written = formats[chosen]
    pages = _pages(visit, filters)
    # The first page is read before the answer begins, so that an error is still an answer of its own.
    first = await anext(pages)
    return StreamingResponse(
        written(_with(first, pages)),
        media_type=media_type,
        headers={"Content-Disposition": f'attachment; filename="jobs.{chosen}"'},
    )


async def _with(first: tuple[list[dict[str, Any]], bool], pages: Jobs) -> Jobs:
    yield first
    async for page in pages:
        yield page


async def _pages(visit: Visit, filters: JobFilters) -> Jobs:
    """Pages of jobs, and with each whether it is the end of all that match."""
    before, left = filters.before, MOST
    until = time.monotonic() + LONGEST
    while True:
        found = await visit.read(
            search(
                filters.search, before, min(_PAGE, left), _PATIENCE, oldest_first=filters.oldest_first, ids_only=True
            )
        )
        jobs = await visit.read(bulk.rows(found["ids"])) if found["ids"] else []
        for job in jobs:
            for name in _JSON_COLUMNS:
                job[name] = shown(job[name], visit.dashboard.redaction)
        before, left = found["looked_to"], left - len(found["ids"])
        yield jobs, before is None
        if before is None or left <= 0 or time.monotonic() > until:
            return


async def _json(pages: Jobs) -> AsyncGenerator[str]:
    """One object. "complete" is at its end: false if there are more jobs than a file has."""
    yield '{"jobs": ['
    separator, complete = "\n", False
    async for jobs, complete in pages:  # noqa: B007
        for job in jobs:
            yield separator + _dumped(job)
            separator = ",\n"
    yield f'\n], "complete": {json.dumps(complete)}}}\n'


async def _csv(pages: Jobs) -> AsyncGenerator[str]:
    """A line for each job. A last line says so if there are more jobs than a file has."""
    yield _line(_COLUMNS)
    complete = False
    async for jobs, complete in pages:  # noqa: B007
        yield "".join(
            _line([_dumped(job[name]) if name in _JSON_COLUMNS else job[name] for name in _COLUMNS]) for job in jobs
        )

    if not complete:
        said = f"NOT COMPLETE: a file has up to {MOST:,} jobs, read in up to {LONGEST:g} s. Narrow the filters."
        yield _line([said, *[None] * (len(_COLUMNS) - 1)])


def _line(cells: Any) -> str:
    written = io.StringIO()
    # Some spreadsheets split a cell at a semicolon, too, unless it is quoted.
    csv.writer(written, quoting=csv.QUOTE_ALL).writerow([_cell(cell) for cell in cells])
    return sendable(written.getvalue())


def _cell(value: Any) -> Any:
    """A value that no spreadsheet takes for a formula. Numbers are none."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return "" if value is None else value


def _dumped(value: Any) -> str:
    # Python's own integers and JSON have no largest number.
    try:
        return "" if value is None else to_json(value)
    except (RecursionError, ValueError):
        return '"(nested too deep to be written)"'
