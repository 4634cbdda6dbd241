"""`stepwell jobs`: list, count, show, retry, run, edit, cancel, fork, send."""

from __future__ import annotations

import dataclasses
from typing import Annotated, TypeVar

import typer

from stepwell.cli import names, usage
from stepwell.cli.confirm import YesOption
from stepwell.cli.filters import (
    ErrorOption,
    MetadataOption,
    NewerOption,
    OlderOption,
    OwnerOption,
    QueueOption,
    StateOption,
    TaskOption,
    WorkerOption,
    job_match,
)
from stepwell.cli.group import new_group
from stepwell.cli.job_changes import change, change_ids
from stepwell.cli.job_page import print_job
from stepwell.cli.job_steps import lacks_step, no_such_step
from stepwell.cli.job_table import print_jobs, print_running
from stepwell.cli.options import JsonOption, ValueOption
from stepwell.cli.output import dump, record, say
from stepwell.cli.session import DatabaseOption, opened, session
from stepwell.errors import JobNotFound, StepNotFound, StepwellError, no_such_job
from stepwell.jobs.bulk import cancelling, count_matching, hurrying, list_matching, retrying
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.postgres.fetch import fetch
from stepwell.postgres.query_plan import QueryPlan, run
from stepwell.values.job import FINISHED

group = new_group("List, count, show, retry, run, edit, cancel, fork and signal jobs.")

T = TypeVar("T")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The job's id.", show_default=False)]
IdsArgument = Annotated[list[str] | None, typer.Argument(metavar="ID", help="The jobs' ids.", show_default=False)]
AllOption = Annotated[bool, typer.Option("--all", help="All that there are: for when no filter is given.")]
TimeoutOption = Annotated[
    str, typer.Option("--timeout", metavar="LENGTH", help="Look no longer than this, where few jobs match.")
]


@group.command("list")
def list_(
    state: StateOption = None,
    queue: QueueOption = None,
    task: TaskOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    metadata: MetadataOption = None,
    owner: OwnerOption = None,
    worker: WorkerOption = None,
    error: ErrorOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many.", min=1, max=1_000_000)] = 50,
    before: Annotated[
        str | None, typer.Option(metavar="ID", help="Older than this job: the last of the page before.")
    ] = None,
    timeout: TimeoutOption = "30s",
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """List jobs, live and finished, the newest first. --state running shows since when, where and how far they run."""
    which = job_match(state, queue, task, older_than, newer_than, metadata, owner, worker, error)
    last = None if before is None else usage.job_id(before)
    looking = list_matching(which, limit, last, usage.length(timeout, "--timeout"))
    with opened(database) as home:
        found = _read(looking, home)
        retried = [str(job.id) for job in found if job.state == "scheduled" and job.attempt and job.error is None]
        errors = dict(home.fetch(queries.reads.last_errors(retried))) if retried else {}
        found = [dataclasses.replace(job, error=errors.get(str(job.id), job.error)) for job in found]
        now = home.fetch(queries.reads.clock())[0]
        if not found:
            with home.connect() as connection:
                names.warn_of(connection, {"queue": queue, "task": task, "owner": owner})
    if json:
        dump([record(job, "failures", "steps") for job in found])
        return
    (print_running if state == ["running"] else print_jobs)(found, now)


@group.command()
def count(
    state: StateOption = None,
    queue: QueueOption = None,
    task: TaskOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    metadata: MetadataOption = None,
    owner: OwnerOption = None,
    worker: WorkerOption = None,
    error: ErrorOption = None,
    at_most: Annotated[
        int | None, typer.Option(metavar="N", help="Count no further than this.", min=1, show_default=False)
    ] = None,
    timeout: TimeoutOption = "30s",
    database: DatabaseOption = None,
) -> None:
    """Print how many jobs there are, live and finished."""
    which = job_match(state, queue, task, older_than, newer_than, metadata, owner, worker, error)
    counting = count_matching(which, at_most, usage.length(timeout, "--timeout"))
    with opened(database) as home:
        say(str(_read(counting, home)))


@group.command()
def show(
    id: IdArgument,  # noqa: A002
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """Show all that is known of a job, with what it has saved and each attempt that failed."""
    job_id = usage.job_id(id)
    with session(database) as connection:
        found = fetch(connection, queries.reads.info(job_id))
        failures = fetch(connection, queries.reads.failures(job_id))
        steps = fetch(connection, queries.reads.steps(job_id))
    if not found:
        raise no_such_job(job_id)
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
    worker: WorkerOption = None,
    error: ErrorOption = None,
    step: Annotated[
        str | None, typer.Option(metavar="KEY", help="Go back to this step, as 'stepwell jobs show' names it.")
    ] = None,
    from_start: Annotated[bool, typer.Option("--from-start", help="Forget all that the jobs have saved.")] = False,
    input_: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="JSON",
            help="With --step: what that step of a chain, or that state of a machine, is given. It may be any.",
        ),
    ] = None,
    all_: AllOption = False,
    yes: YesOption = False,
    database: DatabaseOption = None,
) -> None:
    """Run jobs again under the same id: failed ones unless --state says cancelled, or scheduled for those that wait for
    their next try. A durable job goes on where it stood. Name them by id or by filters; exit code 1 if one of the ids
    could not be retried."""
    which = job_match(state, queue, task, older_than, newer_than, metadata, owner, worker, error)
    if from_start and (step is not None or input_ is not None):
        raise usage.Usage(f"--{'input' if step is None else 'step'} and --from-start exclude each other: give one")
    if input_ is not None and step is None:
        raise usage.Usage("--input is for a step: name it with --step")
    what = retrying(step, from_start=from_start, input=usage.json_value(input_, "--input"))
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
    worker: WorkerOption = None,
    error: ErrorOption = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why: kept with the job.")] = None,
    all_: AllOption = False,
    yes: YesOption = False,
    database: DatabaseOption = None,
) -> None:
    """Cancel jobs, and their children: at once if they wait, while the workers of those that run are told to stop them.
    What has steps to be undone is run once more for that. Name them by id or by filters; exit code 1 if one of the ids
    could not be cancelled."""
    which = job_match(state, queue, task, older_than, newer_than, metadata, owner, worker, error)
    with usage.refusing():
        what = cancelling(reason)
    change(what, ids or [], which, everything=all_, yes=yes, database=database)


@group.command("run")
def run_(
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="The jobs' ids.", show_default=False)],
    database: DatabaseOption = None,
) -> None:
    """Run jobs now that wait for their time: put off, or until their next attempt. Their priority stays. Exit code 1 if
    one of them does not wait for that."""
    change_ids(hurrying(), ids, database)


@group.command()
def edit(
    id: IdArgument,  # noqa: A002
    args: Annotated[
        str, typer.Option(metavar="JSON", help="All arguments by name, a JSON object.", show_default=False)
    ],
    database: DatabaseOption = None,
) -> None:
    """Give a job other arguments: one that is ready, scheduled or blocked, or a failed or cancelled one, which
    'stepwell jobs retry' runs with them. Whether they fit the task is seen when it runs: the app is not asked."""
    job_id = usage.job_id(id)
    usage.json_object(args, "--args")
    with session(database) as connection:
        edited = fetch(connection, queries.jobs.edit_args([job_id], [args]))[0]
        states = fetch(connection, queries.reads.job_states([job_id]))
    if not states:
        raise no_such_job(job_id)
    state = states[0][1]
    if not edited:
        raise StepwellError(
            f"job {job_id} is {state}: only a job that is ready, scheduled, blocked, failed or cancelled can be edited"
        )
    again = ": 'stepwell jobs retry' runs it" if state in FINISHED else ""
    say(f"{job_id} has new args, and is {state}{again}")


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
            forked = fetch(connection, queries.jobs.fork(job_id, step))[0]
        if lacking:
            raise StepNotFound(f"job {job_id} {no_such_step(connection, job_id, step)}")
    if forked is None:
        raise no_such_job(job_id)
    say(str(forked))


@group.command()
def send(
    id: IdArgument,  # noqa: A002
    name: Annotated[str, typer.Argument(metavar="NAME", help="What ctx.receive asks for.", show_default=False)],
    value: ValueOption = None,
    database: DatabaseOption = None,
) -> None:
    """Send something to one live job, which takes it by ctx.receive: what is sent first is taken first, each once."""
    job_id, said = usage.job_id(id), usage.json_value(value, "--value")
    named = usage.event_name(name, "NAME")
    with session(database) as connection:
        sent = fetch(connection, queries.steps.send(job_id, named, said))[0]
        states = [] if sent else fetch(connection, queries.reads.job_states([job_id]))
    if sent:
        say(f"sent {name!r} to {job_id}")
        return
    if not states:
        raise no_such_job(job_id)
    raise JobNotFound(f"job {job_id} is {states[0][1]}: only a job that has not ended can be sent something")


def _read(plan: QueryPlan[T], home: Database) -> T:
    try:
        return run(plan, home)
    except TimeoutError as error:
        raise StepwellError(str(error)) from None
