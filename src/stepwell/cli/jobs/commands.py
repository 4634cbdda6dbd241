"""The commands of `stepwell jobs`: list, count, show, why, retry, run, edit, cancel, fork, send."""

from __future__ import annotations

import dataclasses
from typing import Annotated, TypeVar

import typer

from stepwell.cli import known_names, parse
from stepwell.cli.database import DatabaseOption, connect, open_database
from stepwell.cli.group import new_group
from stepwell.cli.jobs.acts import change_jobs
from stepwell.cli.jobs.filters import filtered
from stepwell.cli.jobs.page import print_job
from stepwell.cli.jobs.table import print_jobs, print_running
from stepwell.cli.options import JsonOption, ValueOption, YesOption
from stepwell.cli.output import dump, fields, record, say
from stepwell.errors import JobNotFound, StepNotFound, StepwellError, no_such_job
from stepwell.jobs.act_by_id import no_such_step
from stepwell.jobs.bulk import cancelling, count_matching, list_matching, retrying, running_now
from stepwell.jobs.reads import info_of
from stepwell.jobs.why import why_of
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.search import JobMatch
from stepwell.postgres.query_plan import QueryPlan, run
from stepwell.values.duration import local_time
from stepwell.values.job import FINISHED

group = new_group("List, inspect and change jobs.")

T = TypeVar("T")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The job's id.", show_default=False)]
IdsArgument = Annotated[list[str] | None, typer.Argument(metavar="ID", help="The jobs' ids.", show_default=False)]
AllOption = Annotated[
    bool, typer.Option("--all", help="Select all jobs. Required if neither ids nor filters are given.")
]
TimeoutOption = Annotated[
    str, typer.Option("--timeout", metavar="DURATION", help="Give up after this long. Matters where few jobs match.")
]


@group.command("list")
@filtered
def list_(
    which: JobMatch,
    limit: Annotated[int, typer.Option("--limit", "-n", help="List at most this many.", min=1, max=1_000_000)] = 50,
    before: Annotated[
        str | None, typer.Option(metavar="ID", help="Only jobs older than this one: the last of the previous page.")
    ] = None,
    timeout: TimeoutOption = "30s",
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """List jobs, live and finished, newest first.

    With --state running, the list shows on which worker and for how long each job runs, and its progress.
    """
    last = None if before is None else parse.job_id(before)
    looking = list_matching(which, limit, last, parse.duration(timeout, "--timeout"))
    with open_database(database) as opened:
        found = _read(looking, opened)
        retried = [str(job.id) for job in found if job.state not in FINISHED and job.attempt and job.error is None]
        errors = dict(opened.fetch(queries.reads.last_errors(retried))) if retried else {}
        found = [dataclasses.replace(job, error=errors.get(str(job.id), job.error)) for job in found]
        now = opened.fetch(queries.reads.clock())[0]
        if not found:
            known_names.check_filter(opened, which, known_names.warn_of)
    if json:
        dump([record(job, "failures", "steps") for job in found])
        return
    (print_running if which.states == ("running",) else print_jobs)(found, now)


@group.command()
@filtered
def count(
    which: JobMatch,
    at_most: Annotated[
        int | None, typer.Option(metavar="N", help="Stop counting at N.", min=1, show_default=False)
    ] = None,
    timeout: TimeoutOption = "30s",
    database: DatabaseOption = None,
) -> None:
    """Count jobs, live and finished."""
    counting = count_matching(which, at_most, parse.duration(timeout, "--timeout"))
    with open_database(database) as opened:
        found = _read(counting, opened)
        say(str(found))
        if not found:
            known_names.check_filter(opened, which, known_names.warn_of)


@group.command()
def show(
    id: IdArgument,  # noqa: A002
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """Show a job: its fields, its saved steps and its failed attempts."""
    job_id = parse.job_id(id)
    with open_database(database) as opened:
        job = run(info_of(job_id), opened)
    if job is None:
        raise no_such_job(job_id)
    if json:
        dump(record(job))
    else:
        print_job(job)


@group.command()
def why(
    id: IdArgument,  # noqa: A002
    json: JsonOption = False,
    database: DatabaseOption = None,
) -> None:
    """Say why a job has not ended, and what to do next.

    Such as: it is delayed, its queue is paused, a limit is full, it waits for an event, no worker knows its task.
    """
    job_id = parse.job_id(id)
    with open_database(database) as opened:
        found = run(why_of(job_id), opened)
    if found.cause == "not_found":
        raise no_such_job(job_id)
    if json:
        dump(record(found))
        return
    fields(
        [
            ("cause", found.cause.replace("_", " ")),
            ("subject", found.subject),
            *([] if found.until is None else [("until", local_time(found.until))]),
            ("next", found.next_act),
        ]
    )


@group.command()
@filtered
def retry(
    which: JobMatch,
    ids: IdsArgument = None,
    step: Annotated[
        str | None, typer.Option(metavar="KEY", help="Go back to this step; 'stepwell jobs show' lists them.")
    ] = None,
    from_start: Annotated[bool, typer.Option("--from-start", help="Discard the saved steps and start over.")] = False,
    input_: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="JSON",
            help="With --step: the input for that step of a chain or state of a machine, reached before or not.",
        ),
    ] = None,
    all_: AllOption = False,
    yes: YesOption = False,
    database: DatabaseOption = None,
) -> None:
    """Run jobs again, under the same id.

    Select jobs by id or by filters. Filters select failed jobs, unless --state names cancelled ones, or scheduled ones
    that wait for their next attempt. A durable job continues after its last saved step. The exit code is 1 if a job
    given by id could not be retried.
    """
    if from_start and (step is not None or input_ is not None):
        raise parse.UsageError(f"--{'input' if step is None else 'step'} and --from-start cannot be combined: give one")
    if input_ is not None and step is None:
        raise parse.UsageError("--input needs a step: name it with --step")
    act = retrying(step, from_start=from_start, input=parse.json_value(input_, "--input"))
    change_jobs(act, ids or [], which, everything=all_, yes=yes, database=database)


@group.command()
@filtered
def cancel(
    which: JobMatch,
    ids: IdsArgument = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="The reason, stored with the job.")] = None,
    all_: AllOption = False,
    yes: YesOption = False,
    database: DatabaseOption = None,
) -> None:
    """Cancel jobs and their children.

    Select jobs by id or by filters. A job that does not run is cancelled at once; the worker of a running job is asked
    to stop it. A job with steps to undo runs once more to undo them. The exit code is 1 if a job given by id could not
    be cancelled.
    """
    with parse.usage_errors():
        act = cancelling(reason)
    change_jobs(act, ids or [], which, everything=all_, yes=yes, database=database)


@group.command("run")
@filtered
def run_(
    which: JobMatch,
    ids: IdsArgument = None,
    all_: AllOption = False,
    yes: YesOption = False,
    database: DatabaseOption = None,
) -> None:
    """Run jobs now that are scheduled for later.

    Select jobs by id or by filters. These are delayed jobs, and jobs that wait for their next attempt. Their priority
    does not change. The exit code is 1 if a job given by id was not scheduled.
    """
    change_jobs(running_now(), ids or [], which, everything=all_, yes=yes, database=database)


@group.command()
def edit(
    id: IdArgument,  # noqa: A002
    args: Annotated[
        str, typer.Option(metavar="JSON", help="All arguments by name, as a JSON object.", show_default=False)
    ],
    database: DatabaseOption = None,
) -> None:
    """Replace the arguments of a job.

    The job must be ready, scheduled, blocked, failed or cancelled. A failed or cancelled job uses them when 'stepwell
    jobs retry' runs it again. The arguments are not checked against the task until the job runs.
    """
    job_id = parse.job_id(id)
    parse.json_object(args, "--args")
    with connect(database) as connection:
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
    say(f"{job_id} has new args and is {state}{again}")


@group.command()
def fork(
    id: IdArgument,  # noqa: A002
    step: Annotated[
        str,
        typer.Option(metavar="KEY", help="The step to start at; 'stepwell jobs show' lists them.", show_default=False),
    ],
    database: DatabaseOption = None,
) -> None:
    """Enqueue a copy of a job that starts at a given step.

    The job may be live or finished. The copy has all that the job had saved before that step. If the job's steps were
    undone, the copy starts over. Prints its id.
    """
    job_id = parse.job_id(id)
    with open_database(database) as opened:
        try:
            forked = opened.fetch(queries.jobs.fork(job_id, step))[0]
        except StepNotFound:
            raise StepNotFound(f"job {job_id} {run(no_such_step(job_id, step), opened)}") from None
    if forked is None:
        raise no_such_job(job_id)
    say(str(forked))


@group.command()
def send(
    id: IdArgument,  # noqa: A002
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name that ctx.receive() waits for.", show_default=False)
    ],
    value: ValueOption = None,
    database: DatabaseOption = None,
) -> None:
    """Send a signal to one live job.

    The job receives it with ctx.receive(). Signals are received in the order in which they were sent, each once.
    """
    job_id, said = parse.job_id(id), parse.json_value(value, "--value")
    named = parse.name(name, "NAME")
    with connect(database) as connection:
        sent = fetch(connection, queries.events.send(job_id, named, said))[0]
        states = [] if sent else fetch(connection, queries.reads.job_states([job_id]))
    if sent:
        say(f"sent {name!r} to {job_id}")
        return
    if not states:
        raise no_such_job(job_id)
    raise JobNotFound(f"job {job_id} is {states[0][1]}: only a live job can receive a signal")


def _read(plan: QueryPlan[T], database: Database) -> T:
    try:
        return run(plan, database)
    except TimeoutError as error:
        raise StepwellError(str(error)) from None
