"""`stepwell jobs`: list, show, retry, cancel, fork, send."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from stepwell import queries
from stepwell.cli import names, usage
from stepwell.cli.confirm import YesOption
from stepwell.cli.filters import (
    MetadataOption,
    NewerOption,
    OlderOption,
    OwnerOption,
    QueueOption,
    StateOption,
    TaskOption,
    job_filter,
)
from stepwell.cli.group import new_group
from stepwell.cli.job_changes import cancelling, change, retrying
from stepwell.cli.job_page import print_job
from stepwell.cli.job_steps import lacks_step, no_such_step
from stepwell.cli.job_table import print_jobs, print_running
from stepwell.cli.options import JsonOption, ValueOption
from stepwell.cli.output import dump, record, say
from stepwell.cli.session import DatabaseOption, session
from stepwell.db import fetch
from stepwell.errors import JobNotFound, StepNotFound

group = new_group("List, show, retry, cancel, fork and signal jobs.")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The job's id.", show_default=False)]
IdsArgument = Annotated[list[str] | None, typer.Argument(metavar="ID", help="The jobs' ids.", show_default=False)]
AllOption = Annotated[bool, typer.Option("--all", help="All that there are: for when no filter is given.")]


@group.command("list")
def list_(
    state: StateOption = None,
    queue: QueueOption = None,
    task: TaskOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    metadata: MetadataOption = None,
    owner: OwnerOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many.", min=1, max=1_000_000)] = 50,
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """List jobs, live and finished, the newest first. --state running shows since when, where and how far they run."""
    which = job_filter(state, queue, task, older_than, newer_than, metadata, owner)
    with session(database) as connection:
        found = fetch(connection, queries.list_jobs(which, limit))
        retried = [str(job.id) for job in found if job.state == "scheduled" and job.attempt and job.error is None]
        errors = dict(fetch(connection, queries.last_errors(retried))) if retried else {}
        found = [dataclasses.replace(job, error=errors.get(str(job.id), job.error)) for job in found]
        now = fetch(connection, queries.clock())[0]
        if not found:
            names.warn_of(connection, {"queue": queue, "task": task, "owner": owner})
    if json:
        dump([record(job, "failures", "steps") for job in found])
        return
    (print_running if state == ["running"] else print_jobs)(found, now)


@group.command()
def show(
    id: IdArgument,  # noqa: A002
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """Show all that is known of a job, with what it has saved and each attempt that failed."""
    job_id = usage.job_id(id)
    with session(database) as connection:
        found = fetch(connection, queries.info(job_id))
        failures = fetch(connection, queries.failures(job_id))
        steps = fetch(connection, queries.steps(job_id))
    if not found:
        raise _not_known(job_id)
    if json:
        dump({**record(found[0]), "failures": failures, "steps": steps})
    else:
        print_job(found[0], failures, steps)


@group.command()
def retry(
    ids: IdsArgument = None,
    state: StateOption = None,
    queue: QueueOption = None,
    task: TaskOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    metadata: MetadataOption = None,
    owner: OwnerOption = None,
    step: Annotated[
        str | None, typer.Option(metavar="KEY", help="Go back to this step, as 'stepwell jobs show' names it.")
    ] = None,
    from_start: Annotated[bool, typer.Option("--from-start", help="Forget all that the jobs have saved.")] = False,
    all_: AllOption = False,
    yes: YesOption = False,
    database: DatabaseOption = None,
) -> None:
    """Run jobs again under the same id: failed ones unless --state says cancelled, or scheduled for those that wait for
    their next try. A durable job goes on where it stood. Name them by id or by filters; exit code 1 if one of the ids
    could not be retried."""
    which = job_filter(state, queue, task, older_than, newer_than, metadata, owner)
    what = retrying(step, from_start=from_start)
    change(what, ids or [], which, everything=all_, yes=yes, database=database)


@group.command()
def cancel(
    ids: IdsArgument = None,
    state: StateOption = None,
    queue: QueueOption = None,
    task: TaskOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    metadata: MetadataOption = None,
    owner: OwnerOption = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why: kept with the job.")] = None,
    all_: AllOption = False,
    yes: YesOption = False,
    database: DatabaseOption = None,
) -> None:
    """Cancel jobs, and their children: at once if they wait, while the workers of those that run are told to stop them.
    What has steps to be undone is run once more for that. Name them by id or by filters; exit code 1 if one of the ids
    could not be cancelled."""
    which = job_filter(state, queue, task, older_than, newer_than, metadata, owner)
    change(cancelling(reason), ids or [], which, everything=all_, yes=yes, database=database)


@group.command()
def fork(
    id: IdArgument,  # noqa: A002
    step: Annotated[
        str,
        typer.Option(metavar="KEY", help="Begin there: a step as 'stepwell jobs show' names it.", show_default=False),
    ],
    database: DatabaseOption = None,
) -> None:
    """Put in a new job that begins with all that another, live or finished, had saved before a step; print its id."""
    job_id = usage.job_id(id)
    with session(database) as connection:
        forked = None
        with lacks_step() as lacking:
            forked = fetch(connection, queries.fork(job_id, step))[0]
        if lacking:
            raise StepNotFound(f"job {job_id} {no_such_step(connection, job_id, step)}")
    if forked is None:
        raise _not_known(job_id)
    say(str(forked))


@group.command()
def send(
    id: IdArgument,  # noqa: A002
    name: Annotated[str, typer.Argument(metavar="NAME", help="What ctx.receive asks for.", show_default=False)],
    value: ValueOption = None,
    database: DatabaseOption = None,
) -> None:
    """Send something to one live job, which takes it by ctx.receive: what is sent first is taken first, each once."""
    job_id, said = usage.job_id(id), usage.signal_value(value, "--value")
    named = usage.event_name(name, "NAME")
    with session(database) as connection:
        sent = fetch(connection, queries.send(job_id, named, said))[0]
        states = [] if sent else fetch(connection, queries.job_states([job_id]))
    if sent:
        say(f"sent {name!r} to {job_id}")
        return
    if not states:
        raise _not_known(job_id)
    raise JobNotFound(f"job {job_id} is {states[0][1]}: only a job that has not ended can be sent something")


def _not_known(job_id: str) -> JobNotFound:
    return JobNotFound(f"there is no job {job_id}: it was never enqueued here, or its history is not kept any more")
