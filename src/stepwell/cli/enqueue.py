"""`stepwell enqueue`: put a job in by its task's name, without the app."""

from __future__ import annotations

from typing import Annotated

import typer

from stepwell.cli import names, usage
from stepwell.cli.output import say, warn
from stepwell.cli.session import DatabaseOption, session
from stepwell.jobs.codec import encode_metadata
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.values.job import NewJob


def enqueue(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name.", show_default=False)],
    args: Annotated[str, typer.Argument(metavar="JSON", help="The arguments by name, a JSON object.")] = "{}",
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="NAME",
            help="Into this queue.  [default: the task's, if a live worker knows it, else 'default']",
            show_default=False,
        ),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            help="A higher one goes first.  [default: the task's, or 0]", min=-32767, max=32767, show_default=False
        ),
    ] = None,
    delay: Annotated[str | None, typer.Option(metavar="LENGTH", help="Not before then: 30s, 1h30m, 7d.")] = None,
    run_at: Annotated[str | None, typer.Option(metavar="TIME", help="Not before 2030-12-31T23:59:00+01:00.")] = None,
    metadata: Annotated[str | None, typer.Option(metavar="JSON", help="A JSON object to find the job by.")] = None,
    max_attempts: Annotated[
        int | None, typer.Option(help="Instead of what the task says.", min=1, max=1_000_000)
    ] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only for workers of the app that was given this name.")
    ] = None,
    database: DatabaseOption = None,
) -> None:
    """Put a job in and print its id. Whether the arguments fit the task is seen when it runs: the app is not asked."""
    usage.json_object(args, "the argument after TASK")
    if delay is not None and run_at is not None:
        raise usage.Usage("--delay and --run-at exclude each other: give one")
    job = NewJob(
        usage.name(task, "TASK"),
        args,
        None if queue is None else usage.name(queue, "--queue"),
        priority,
        None if delay is None else usage.length(delay, "--delay"),
        None if run_at is None else usage.moment(run_at, "--run-at"),
        None if metadata is None else encode_metadata(usage.json_object(metadata, "--metadata")),
        max_attempts,
        None if owner is None else usage.name(owner, "--owner"),
    )
    with session(database, create=True) as connection:
        # Before the job makes its names known itself.
        doubts = names.doubts(connection, {"task": job.task, "queue": job.queue, "owner": job.owner}, served=True)
        say(str(fetch(connection, queries.jobs.enqueue_one(job))[0]))
    for doubt in doubts:
        warn(doubt)
