"""The `stepwell` command, and all commands below it."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from stepwell.cli import (
    audit,
    bulk,
    dev,
    doctor,
    emit,
    enqueue,
    failures,
    fleet,
    grants,
    jobs,
    limits,
    mcp,
    migrate,
    prune,
    queues,
    schedules,
    schema,
    sizes,
    tasks,
    web,
    worker,
    workers,
)
from stepwell.cli.database import DatabaseOption
from stepwell.cli.group import help_instead
from stepwell.cli.output import say
from stepwell.cli.top.command import top
from stepwell.postgres.address import ENVIRONMENT

# They list by themselves. The others that list, such as `jobs`, have a command `list`.
_LISTING = ("audit", "bulk", "failures", "grants", "limits", "queues", "sizes", "workers")


class _Commands(TyperGroup):
    """`stepwell NOUN` and `stepwell NOUN list` are the same, for each noun that lists."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if ctx.resilient_parsing:
            return name, command, rest  # the shell completes what was typed
        if name in _LISTING and rest[:1] == ["list"]:
            rest = rest[1:]
        elif "list" in getattr(command, "commands", ()) and (
            not rest or (rest[0].startswith("-") and rest[0] not in ctx.help_option_names)
        ):
            rest = ["list", *rest]
        return name, command, rest


cli = typer.Typer(
    cls=_Commands,
    help="Run and manage background jobs in Postgres.",
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
cli.command("web")(web.web)
cli.command("top")(top)
cli.command("mcp")(mcp.mcp)
cli.command("enqueue")(enqueue.enqueue)
cli.command("emit")(emit.emit)
cli.add_typer(jobs.group, name="jobs")
cli.add_typer(bulk.group, name="bulk")
cli.add_typer(schedules.group, name="schedules")
cli.add_typer(queues.group, name="queues")
cli.add_typer(limits.group, name="limits")
cli.add_typer(failures.group, name="failures")
cli.command("audit")(audit.audit)
cli.command("pause")(fleet.pause)
cli.command("resume")(fleet.resume)
cli.command("stop")(fleet.stop)
cli.command("workers")(workers.workers)
cli.add_typer(tasks.group, name="tasks")
cli.command("doctor")(doctor.doctor)
cli.command("migrate")(migrate.migrate)
cli.command("prune")(prune.prune)
cli.command("grant")(grants.grant)
cli.command("revoke")(grants.revoke)
cli.command("grants")(grants.grants)
cli.add_typer(sizes.group, name="sizes")
cli.add_typer(schema.group, name="schema")
