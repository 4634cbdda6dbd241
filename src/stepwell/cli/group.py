"""A command that only holds others."""

from __future__ import annotations

import typer

from stepwell.cli.output import say


def new_group(promise: str) -> typer.Typer:
    """A group of commands, which by itself shows its help."""
    group = typer.Typer(help=promise, rich_markup_mode=None)

    @group.callback(invoke_without_command=True)
    def show_help(context: typer.Context) -> None:  # pyright: ignore[reportUnusedFunction]
        help_instead(context)

    return group


def help_instead(context: typer.Context) -> None:
    """Show the help if no command is named. That is a usage error, though a common one."""
    if context.invoked_subcommand is None:
        say(context.get_help())
        raise typer.Exit(2)
