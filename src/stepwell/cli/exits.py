"""Exit codes: what a worker process says with its end, and how a supervisor reads it."""

from __future__ import annotations

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
REFUSED = 69
"""Only for a supervisor, and otherwise `TROUBLE`: before it could begin, the database refused it, or with --no-wait was
away."""
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
