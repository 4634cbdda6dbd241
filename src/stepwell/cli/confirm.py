"""Confirm a change of many jobs or workers: on a terminal by asking, elsewhere by --yes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from stepwell.cli.parse import UsageError

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
