"""The `stepwell` command, and all commands below it."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Annotated

import typer

from stepwell.cli import (
    dev,
    doctor,
    emit,
    enqueue,
    fleet,
    grants,
    jobs,
    limits,
    migrate,
    queues,
    schedules,
    schema,
    sizes,
    tasks,
    worker,
    workers,
)
from stepwell.cli.database import DatabaseOption
from stepwell.cli.group import help_instead
from stepwell.cli.output import say
from stepwell.postgres.address import ENVIRONMENT

cli = typer.Typer(
    help="Run and manage background jobs in Postgres.",
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
        # For the command, and for the processes that it may start.
        os.environ[ENVIRONMENT] = database
    help_instead(context)


cli.command("worker")(worker.worker)
cli.command("dev")(dev.dev)
cli.command("enqueue")(enqueue.enqueue)
cli.command("emit")(emit.emit)
cli.add_typer(jobs.group, name="jobs")
cli.add_typer(schedules.group, name="schedules")
cli.add_typer(queues.group, name="queues")
cli.add_typer(limits.group, name="limits")
cli.command("pause")(fleet.pause)
cli.command("resume")(fleet.resume)
cli.command("stop")(fleet.stop)
cli.command("workers")(workers.workers)
cli.command("tasks")(tasks.tasks)
cli.command("doctor")(doctor.doctor)
cli.command("migrate")(migrate.migrate)
cli.command("grant")(grants.grant)
cli.command("revoke")(grants.revoke)
cli.command("grants")(grants.grants)
cli.add_typer(sizes.group, name="sizes")
cli.add_typer(schema.group, name="schema")
