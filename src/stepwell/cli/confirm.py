"""Acts on many jobs or workers are confirmed: by an answer on a terminal, or by --yes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from stepwell.cli.usage import Usage

YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask; needed where there is no terminal to ask on.")
]


def check_can_ask(command: str, *, yes: bool) -> None:
    """Raise if the act is not confirmed and nobody can be asked: a script must say that it means it."""
    if not yes and not sys.stdin.isatty():
        raise Usage(f"{command} changes all that match, and there is no terminal to ask on: add --yes (-y) to do it")


def ask(question: str) -> None:
    """Ask, and end the command if the answer is no."""
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)
