"""Options and arguments that several commands share, and how a command asks for confirmation."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from stepwell.cli.completion import complete_format, complete_level
from stepwell.cli.logs import FORMATS, LEVELS
from stepwell.cli.parse import UsageError

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

ValueOption = Annotated[
    str | None, typer.Option("--value", metavar="JSON", help="The value to send.  [default: null]", show_default=False)
]

AppArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:APP",
        help="The app to load, such as shop.jobs:app for 'app' in shop/jobs.py.",
        show_default=False,
    ),
]

LogLevelOption = Annotated[
    str | None,
    typer.Option(
        autocompletion=complete_level,
        metavar="LEVEL",
        help=f"Lowest level to log: {', '.join(LEVELS)}.  [default: info]",
        show_default=False,
    ),
]


LogFormatOption = Annotated[
    str,
    typer.Option(
        "--log-format", autocompletion=complete_format, metavar="FORMAT", help=f"How to log: {' or '.join(FORMATS)}."
    ),
]

YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask for confirmation. Required without a terminal.")
]


def check_can_ask(command: str, *, yes: bool) -> None:
    """Raise if the change is not confirmed and there is no terminal to ask on: a script must confirm explicitly."""
    if not yes and not sys.stdin.isatty():
        raise UsageError(f"{command} changes all that match, and there is no terminal to ask on: add --yes (-y)")


def ask(question: str) -> None:
    """Ask, and end the command if the answer is no."""
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)
