"""`stepwell jobs delete` and `stepwell jobs move`."""

from __future__ import annotations

from typing import Annotated

import typer

from stepwell.cli import parse
from stepwell.cli.database import DatabaseOption
from stepwell.cli.jobs.acts import change_jobs
from stepwell.cli.jobs.commands import AllOption, IdsArgument, group
from stepwell.cli.jobs.filters import filtered
from stepwell.cli.options import YesOption
from stepwell.jobs.bulk import deleting, moving
from stepwell.postgres.queries.search import JobMatch


@group.command()
@filtered
def delete(
    which: JobMatch,
    ids: IdsArgument = None,
    all_: AllOption = False,
    yes: YesOption = False,
    database: DatabaseOption = None,
) -> None:
    """Delete jobs that have ended, with their steps, failures and signals.

    Select jobs by id or by filters. Workers delete ended jobs by themselves when they have been kept for long enough.
    A live job is not deleted: cancel it first. The exit code is 1 if a job given by id could not be deleted.
    """
    change_jobs(deleting(), ids or [], which, everything=all_, yes=yes, database=database)


@group.command()
@filtered
def move(
    which: JobMatch,
    ids: IdsArgument = None,
    to: Annotated[str | None, typer.Option("--to", metavar="QUEUE", help="The queue to move to.")] = None,
    priority: Annotated[int | None, typer.Option(metavar="N", help="The new priority.", show_default=False)] = None,
    run_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="When to run, such as 2026-01-31T12:00+01:00.")
    ] = None,
    all_: AllOption = False,
    yes: YesOption = False,
    database: DatabaseOption = None,
) -> None:
    """Move jobs that do not run to another queue, priority or time.

    Select jobs by id or by filters. Jobs that are ready, scheduled or blocked can be moved. The exit code is 1 if a job
    given by id could not be moved.
    """
    with parse.usage_errors():
        act = moving(to, priority, None if run_at is None else parse.moment(run_at, "--run-at"))
    change_jobs(act, ids or [], which, everything=all_, yes=yes, database=database)
