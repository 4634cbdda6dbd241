"""The start and end of the command: print every error in one line, and choose the exit code."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any, NoReturn, cast

import psycopg
import typer
import typer.main

from stepwell.cli.commands import cli
from stepwell.cli.output import complain
from stepwell.cli.parse import UsageError
from stepwell.errors import StepwellError

# Typer exports no name for its usage errors, but BadParameter is one.
_TyperUsageError = cast("type[Exception]", typer.BadParameter.__mro__[1])


def main() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that cannot show a character gets its number instead of a traceback.
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    try:
        code = run_command(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        code = 1
        # The reader of our output is gone: let Python's last flush succeed silently.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def run_command(argv: list[str]) -> int:
    """Run the command with these arguments, print any error, and return the exit code."""
    try:
        for typed in argv:
            _check_text(typed)
        returned: Any = _command().main(args=argv, prog_name="stepwell", standalone_mode=False)
        return returned if isinstance(returned, int) else 0
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        return 130
    except UsageError as error:
        complain(str(error))
        return 2
    except _TyperUsageError as error:
        complain(_reword(error))
        return 2
    except (StepwellError, psycopg.Error) as error:
        complain(str(error))
        return 1
    except RecursionError:
        complain("a stored JSON value is nested too deeply for Python to read: read it with psql")
        return 1


@cache
def _command() -> Any:
    """The commands as Typer builds them. That takes longer than most commands, so tests, which run many, do it once."""
    return typer.main.get_command(cli)


def _check_text(typed: str) -> None:
    try:
        typed.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the argument {typed!r} is not valid UTF-8 text") from None


def _reword(error: Exception) -> str:
    said = str(cast("Any", error).format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "stepwell"
    return f'{said}: see "{command} --help"'
