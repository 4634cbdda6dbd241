"""Exit codes: what a worker process says with its end, and how a supervisor reads it."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager

import typer

from stepwell.cli.output import complain
from stepwell.errors import ConfigError

DONE = 0
"""It was asked to end, and nothing went wrong: it is not replaced."""
TROUBLE = 1
USAGE = 2
"""The command line is wrong: no other process with the same one will do better."""
RECYCLE = 75
"""It has reached a limit of its own, and is to be replaced at once."""
MISCONFIGURED = 78
"""Only for a supervisor, and otherwise `TROUBLE`: the app cannot be used until its code or its settings change."""


@contextmanager
def telling(supervised: bool) -> Generator[None]:
    """Within this, tell a supervisor what only a change in the code will mend from other trouble."""
    try:
        yield
    except ConfigError as error:
        if not supervised:
            raise
        complain(str(error))
        raise typer.Exit(MISCONFIGURED) from None


def describe_exit(code: int) -> str:
    """How a process ended, by the code that `subprocess` gives: negative for a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
