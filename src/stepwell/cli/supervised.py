"""The `worker` and `dev` commands as processes of a supervisor: their options, command line, database and exit code."""

from __future__ import annotations

import os
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any, cast

import typer

from stepwell.cli.output import complain
from stepwell.errors import ConfigError, StepwellError
from stepwell.postgres.address import ENVIRONMENT
from stepwell.supervisor import exit_codes

LifelineOption = Annotated[
    int | None,
    typer.Option("--lifeline", hidden=True, help="The descriptor of the supervisor's pipe. Set by a supervisor."),
]
DatabaseGivenOption = Annotated[
    bool,
    typer.Option(
        "--database-given",
        hidden=True,
        help="The supervisor was given --database and passes it in the environment. Set by a supervisor.",
    ),
]


def arguments_for_process(context: typer.Context, **changed: object) -> list[str]:
    """The arguments of the running command, with some options changed; None leaves an option out. Everybody on the
    machine can read arguments, so a URL, which may hold a password, goes through `pass_database`."""
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


def pass_database(database: str | None) -> dict[str, object]:
    """Put a given database into the environment of the processes, and return the options that tell them so."""
    if database is not None:
        os.environ[ENVIRONMENT] = database
    return {"database": None, "database_given": database is not None}


def passed_database(given: bool) -> str | None:
    return os.environ[ENVIRONMENT] if given else None


@contextmanager
def misconfigured_exit(supervised: bool) -> Generator[None]:
    """In a supervised process, give a `ConfigError` its own exit code: only a change of the code helps."""
    try:
        yield
    except ConfigError as error:
        if not supervised:
            raise
        complain(str(error))
        raise typer.Exit(exit_codes.MISCONFIGURED) from None


def report_error(error: Exception) -> None:
    """Print the error that ended a worker: ours in one line, any other with its traceback."""
    if isinstance(error, StepwellError):
        complain(str(error))
    else:
        traceback.print_exception(error)
