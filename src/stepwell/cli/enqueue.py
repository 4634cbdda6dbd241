"""`stepwell enqueue`: enqueue a job by its task's name, without loading the app."""

from __future__ import annotations

from typing import Annotated

import typer

from stepwell.cli import known_names, parse
from stepwell.cli.completion import complete_task
from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.output import say, warn
from stepwell.jobs.metadata import encode_metadata
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.values.job import NewJob


def enqueue(
    task: Annotated[
        str, typer.Argument(autocompletion=complete_task, metavar="TASK", help="The task's name.", show_default=False)
    ],
    args: Annotated[str, typer.Argument(metavar="JSON", help="The arguments by name, as a JSON object.")] = "{}",
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="NAME",
            help="The queue.  [default: the task's, if a live worker knows it, else 'default']",
            show_default=False,
        ),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            help="Jobs with a higher priority run first.  [default: the task's, or 0]",
            min=-32767,
            max=32767,
            show_default=False,
        ),
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Run no earlier than this from now: 30s, 1h30m, 7d.")
    ] = None,
    run_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Run no earlier than this: 2030-12-31T23:59:00+01:00.")
    ] = None,
    metadata: Annotated[
        str | None, typer.Option(metavar="JSON", help="A JSON object stored with the job, to filter by.")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option(help="Use this limit instead of the task's.", min=1, max=1_000_000)
    ] = None,
    owner: Annotated[str | None, typer.Option(metavar="NAME", help="Run only in workers of the app NAME.")] = None,
    database: DatabaseOption = None,
) -> None:
    """Enqueue a job and print its id.

    The app is not loaded: whether the arguments fit the task shows when the job runs, and the task's unique key,
    limits, rates and fair key are not applied. The dashboard and Python apply them.
    """
    parse.json_object(args, "the argument after TASK")
    if delay is not None and run_at is not None:
        raise parse.UsageError("--delay and --run-at cannot be combined: give one")
    job = NewJob(
        parse.name(task, "TASK"),
        args,
        None if queue is None else parse.name(queue, "--queue"),
        priority,
        None if delay is None else parse.duration(delay, "--delay"),
        None if run_at is None else parse.moment(run_at, "--run-at"),
        None if metadata is None else encode_metadata(parse.json_object(metadata, "--metadata")),
        max_attempts,
        None if owner is None else parse.name(owner, "--owner"),
    )
    with connect(database, create=True) as connection:
        # Checked first, because the job itself makes its names known.
        doubts = known_names.doubts(connection, {"task": job.task, "queue": job.queue, "owner": job.owner}, served=True)
        say(str(fetch(connection, queries.jobs.enqueue_one(job))[0]))
    for doubt in doubts:
        warn(doubt)
