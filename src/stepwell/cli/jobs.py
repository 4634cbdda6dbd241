"""`stepwell jobs`: list, show, retry, cancel."""

from __future__ import annotations

from typing import Annotated

import typer

from stepwell import queries
from stepwell.cli import usage
from stepwell.cli.filters import (
    MetadataOption,
    NewerOption,
    OlderOption,
    QueueOption,
    StateOption,
    TaskOption,
    job_filter,
)
from stepwell.cli.group import new_group
from stepwell.cli.job_changes import CANCEL, RETRY, change
from stepwell.cli.job_page import print_job
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, ago, dump, record, table
from stepwell.cli.session import DatabaseOption, session
from stepwell.db import fetch
from stepwell.errors import JobNotFound

group = new_group("List, show, retry and cancel jobs.")

IdsArgument = Annotated[list[str] | None, typer.Argument(metavar="ID", help="The jobs' ids.", show_default=False)]
AllOption = Annotated[bool, typer.Option("--all", help="All that there are: for when no filter is given.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@group.command("list")
def list_(
    state: StateOption = None,
    queue: QueueOption = None,
    task: TaskOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    metadata: MetadataOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many.", min=1, max=1_000_000)] = 50,
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """List jobs, live and finished, the newest first."""
    which = job_filter(state, queue, task, older_than, newer_than, metadata)
    with session(database) as connection:
        found = fetch(connection, queries.list_jobs(which, limit))
        now = fetch(connection, queries.clock())[0]
    if json:
        dump([record(job, "failures") for job in found])
        return
    table(
        [
            Column("id"),
            Column("state"),
            Column("task", cut=True),
            Column("queue", cut=True),
            Column("attempt", right=True),
            Column("enqueued"),
            Column("due"),
            Column("error", cut=True),
        ],
        (
            (
                job.id,
                job.state,
                job.task,
                job.queue,
                job.attempt,
                ago(job.enqueued_at, now),
                ago(job.run_at, now) if job.state == "scheduled" else "",
                job.error,
            )
            for job in found
        ),
        empty="no job matches",
    )


@group.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.", show_default=False)],  # noqa: A002
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """Show all that is known of a job, with each attempt that failed."""
    job_id = usage.job_id(id)
    with session(database) as connection:
        found = fetch(connection, queries.info(job_id))
        failures = fetch(connection, queries.failures(job_id))
    if not found:
        raise JobNotFound(f"there is no job {job_id}: it was never enqueued here, or its history is not kept any more")
    if json:
        dump({**record(found[0]), "failures": failures})
    else:
        print_job(found[0], failures)


@group.command()
def retry(
    ids: IdsArgument = None,
    state: StateOption = None,
    queue: QueueOption = None,
    task: TaskOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    metadata: MetadataOption = None,
    all_: AllOption = False,
    yes: YesOption = False,
    database: DatabaseOption = None,
) -> None:
    """Run jobs again under the same id: failed ones unless --state says cancelled, or scheduled for those that wait for
    their next try. Name them by id or by filters; exit code 1 if one of the ids could not be retried."""
    which = job_filter(state, queue, task, older_than, newer_than, metadata)
    change(RETRY, ids or [], which, everything=all_, yes=yes, reason=None, database=database)


@group.command()
def cancel(
    ids: IdsArgument = None,
    state: StateOption = None,
    queue: QueueOption = None,
    task: TaskOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    metadata: MetadataOption = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why: kept with the job.")] = None,
    all_: AllOption = False,
    yes: YesOption = False,
    database: DatabaseOption = None,
) -> None:
    """Cancel jobs: at once if they wait, while the workers of those that run are told to stop them. Name them by id or
    by filters; exit code 1 if one of the ids could not be cancelled."""
    which = job_filter(state, queue, task, older_than, newer_than, metadata)
    change(CANCEL, ids or [], which, everything=all_, yes=yes, reason=reason, database=database)
