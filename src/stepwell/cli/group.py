"""A command that only groups other commands."""

from __future__ import annotations

import typer

from stepwell.cli.output import say


def new_group(help_text: str) -> typer.Typer:
    group = typer.Typer(help=help_text, rich_markup_mode=None)

    @group.callback(invoke_without_command=True)
    def show_help(context: typer.Context) -> None:  # pyright: ignore[reportUnusedFunction]
        help_instead(context)

    return group


def help_instead(context: typer.Context) -> None:
    """If no command is named, show the help and exit as a usage error."""
    if context.invoked_subcommand is None:
        say(context.get_help())
        raise typer.Exit(2)
