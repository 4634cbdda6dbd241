"""`stepwell mcp`: serve an assistant that reads jobs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Generator
from importlib.util import find_spec
from typing import Annotated

import typer

from stepwell.cli.database import DatabaseOption
from stepwell.cli.load_app import load_app
from stepwell.cli.options import AppArgument
from stepwell.cli.output import hidden_fields
from stepwell.errors import ConfigError
from stepwell.errors.text import how_to_install
from stepwell.postgres.address import ENVIRONMENT

_PARTS = ("mcp", "starlette", "jinja2")


def mcp(
    app: AppArgument,
    redact: Annotated[
        list[str] | None,
        typer.Option(
            "--redact",
            metavar="FIELD",
            help="Hide the values of fields of this name, besides those that STEPWELL_REDACT names. Repeatable.",
            show_default=False,
        ),
    ] = None,
    database: DatabaseOption = None,
) -> None:
    """Serve the jobs of an app to an assistant, over the Model Context Protocol on standard input and output.

    An assistant starts this command by itself. It can read what the dashboard shows, and change nothing.
    """
    missing = [part for part in _PARTS if find_spec(part) is None]
    if missing:
        raise ConfigError(f"the MCP server needs {' and '.join(missing)}: {how_to_install('mcp,web')}")
    if database is not None:
        os.environ[ENVIRONMENT] = database
    with _stdout_to_stderr():
        loaded = load_app(app)

    from stepwell.web.mcp.server import serve_stdio

    asyncio.run(serve_stdio(loaded, redact=[*hidden_fields().names, *(redact or [])]))


@contextlib.contextmanager
def _stdout_to_stderr() -> Generator[None]:
    """What modules print, or programs that they start, must not get between the messages of the protocol: a client may
    refuse them. While it serves, the library does the same."""
    sys.stdout.flush()
    protocol = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(protocol, 1)
        os.close(protocol)
