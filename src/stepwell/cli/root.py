"""All commands under one roof."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Annotated

import typer

from stepwell.cli import (
    control,
    dev,
    doctor,
    emit,
    enqueue,
    jobs,
    limits,
    migrate,
    queues,
    rights,
    schedules,
    schema,
    tasks,
    worker,
    workers,
)
from stepwell.cli.group import help_instead
from stepwell.cli.output import say
from stepwell.cli.session import DatabaseOption
from stepwell.postgres.address import ENVIRONMENT

cli = typer.Typer(
    help="Background jobs in Postgres: run workers, look after jobs.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"stepwell {version('stepwell')}")
        raise typer.Exit


@cli.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    database: DatabaseOption = None,
    _version_wanted: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    if database is not None:
        # For the command, and for the processes it may start.
        os.environ[ENVIRONMENT] = database
    help_instead(context)


cli.command("worker")(worker.worker)
cli.command("dev")(dev.dev)
cli.command("enqueue")(enqueue.enqueue)
cli.command("emit")(emit.emit)
cli.add_typer(jobs.group, name="jobs")
cli.add_typer(schedules.group, name="schedules")
cli.command("queues")(queues.queues)
cli.command("pause")(control.pause)
cli.command("resume")(control.resume)
cli.command("stop")(control.stop)
cli.command("workers")(workers.workers)
cli.command("tasks")(tasks.tasks)
cli.command("doctor")(doctor.doctor)
cli.command("migrate")(migrate.migrate)
cli.command("grant")(rights.grant)
cli.command("revoke")(rights.revoke)
cli.command("grants")(rights.grants)
cli.add_typer(limits.group, name="limits")
cli.add_typer(schema.group, name="schema")
