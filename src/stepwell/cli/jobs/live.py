"""The commands of `stepwell jobs` that look at what a handler does: its log lines, and its stack."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from stepwell.cli import parse
from stepwell.cli.database import DatabaseOption, open_database
from stepwell.cli.options import JsonOption
from stepwell.cli.output import complain, dump, say
from stepwell.errors import no_such_job
from stepwell.jobs.stack import stack_of
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.values.duration import local_time
from stepwell.values.job import FINISHED
from stepwell.values.log_level import LEVELS, level_name

_FOLLOW = 0.5
_PAGE = 1000

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The job's id.", show_default=False)]


def logs(
    id: IdArgument,  # noqa: A002
    level: Annotated[
        str, typer.Option("--level", metavar="LEVEL", help=f"At least this level: {', '.join(LEVELS)}.")
    ] = "debug",
    n: Annotated[int, typer.Option("-n", metavar="N", help="Show the last N lines.", min=1, max=_PAGE)] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """Show what the handler of a job has logged.

    Only jobs of tasks with logs=True, or of an app with logs=True, have log lines: the newest thousand.
    """
    job_id = parse.job_id(id)
    if level.lower() not in LEVELS:
        raise parse.UsageError(f"--level is {level!r}: choose one of {', '.join(LEVELS)}")
    least = LEVELS[level.lower()]
    if json and follow:
        raise parse.UsageError("--json and --follow cannot be combined: give one")
    with open_database(database) as opened:
        found = _page(opened, job_id, least, limit=n)
        if json:
            dump(found["lines"])
            return
        _print(found["lines"])
        if not found["lines"] and not follow:
            complain(f"job {job_id} has no log lines: its task needs logs=True, or none was of this level")
        if follow:
            _follow(opened, job_id, least, found["last"] or 0)


def stack(
    id: IdArgument,  # noqa: A002
    database: DatabaseOption = None,
) -> None:
    """Show where the handler of a running job is.

    The worker that runs it answers with the Python stack, even if the handler blocks the event loop. The exit code is 1
    if the job does not run, or the worker does not answer within 3 seconds.
    """
    job_id = parse.job_id(id)
    with open_database(database) as opened:
        found = stack_of(UUID(job_id), opened)
    if not found.found:
        complain(f"job {job_id}: {found.text}")
        raise typer.Exit(1)
    say(found.text.rstrip("\n"))


def _follow(database: Database, job_id: str, level: int, last: int) -> None:
    ended = False
    while True:
        found = _page(database, job_id, level, after=last, limit=_PAGE)
        _print(found["lines"])
        last = max([last, *(line["line"] for line in found["lines"])])
        if ended and not found["lines"]:
            return
        states = database.fetch(queries.reads.job_states([job_id]))
        # The last lines may be written after the outcome: look once more.
        ended = not states or states[0][1] in FINISHED
        time.sleep(_FOLLOW)


def _page(database: Database, job_id: str, level: int, *, after: int | None = None, limit: int) -> dict[str, Any]:
    [found] = database.fetch(queries.logs.job_logs(job_id, level, None, after, limit))
    if found is None:
        raise no_such_job(job_id)
    return found


def _print(lines: Iterable[dict[str, Any]]) -> None:
    for line in lines:
        at = local_time(datetime.fromisoformat(line["at"]))
        say(f"{at} {level_name(line['level']).upper():<8} {line['logger']} #{line['attempt']}: {line['message']}")
