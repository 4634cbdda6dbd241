"""The command line of a process that does a part of what this one was asked to do."""

from __future__ import annotations

import os
from typing import Any, cast

import typer

from stepwell.postgres.address import ENVIRONMENT


def command_line(context: typer.Context, **changed: object) -> list[str]:
    """The command that runs now, with its options but for those that are `changed`; None leaves one out.

    Everybody on the machine can read it: a URL, which may hold a password, goes by `hand_over`.
    """
    argv = [context.info_name or ""]
    given = {**context.params, **changed}
    for parameter in context.command.params:
        value: Any = given.get(parameter.name or "")
        if value is None or value is False or value == parameter.default:
            continue
        for one in cast("list[object]", value if isinstance(value, list | tuple) else [value]):
            if parameter.param_type_name == "argument":
                argv.append(str(one))
            else:
                argv.append(parameter.opts[0] if one is True else f"{parameter.opts[0]}={one}")
    return argv


def hand_over(database: str | None) -> dict[str, object]:
    """Put a database that was given into the environment of the processes to come, and return the options that tell
    them so."""
    if database is not None:
        os.environ[ENVIRONMENT] = database
    return {"database": None, "database_given": database is not None}


def handed_over(given: bool) -> str | None:
    """The database that a supervisor was given, in a process of its own."""
    return os.environ[ENVIRONMENT] if given else None
