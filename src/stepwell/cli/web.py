"""`stepwell web`: serve the dashboard of an app."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from importlib.util import find_spec
from typing import Annotated

import typer

from stepwell.cli.completion import complete_role
from stepwell.cli.database import DatabaseOption
from stepwell.cli.load_app import load_app
from stepwell.cli.logs import check_level, set_up_logging
from stepwell.cli.options import AppArgument, LogLevelOption
from stepwell.cli.output import complain, hidden_fields, warn
from stepwell.cli.parse import UsageError
from stepwell.errors import ConfigError, StepwellError
from stepwell.errors.text import how_to_install
from stepwell.postgres.address import ENVIRONMENT
from stepwell.postgres.database import Database
from stepwell.postgres.hints import translated

_PARTS = ("starlette", "jinja2", "uvicorn")


def web(
    app: AppArgument,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="Listen here. Any other than this machine needs a login.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", metavar="PORT", help="Listen on it.", min=0, max=65535)] = 8321,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            envvar="STEPWELL_WEB_TOKEN",
            help="Ask for this token: as a bearer token, or as a password.",
            show_default=False,
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            metavar="NAME:PASSWORD",
            envvar="STEPWELL_WEB_USER",
            help="Ask for this name and password.",
            show_default=False,
        ),
    ] = None,
    rights: Annotated[
        str,
        typer.Option(
            autocompletion=complete_role, metavar="ROLE", help="What people may do: viewer, operator or admin."
        ),
    ] = "admin",
    redact: Annotated[
        list[str] | None,
        typer.Option(
            "--redact",
            metavar="FIELD",
            help="Hide the values of fields of this name, besides those that STEPWELL_REDACT names. Repeatable.",
            show_default=False,
        ),
    ] = None,
    trusted_proxy: Annotated[
        bool,
        typer.Option(
            "--trusted-proxy",
            help="A proxy of yours sets X-Forwarded-Prefix and X-Forwarded-Host, and nobody gets past it.",
        ),
    ] = False,
    title: Annotated[str, typer.Option(metavar="TEXT", help="The name at the top of each page.")] = "Stepwell",
    log_level: LogLevelOption = None,
    database: DatabaseOption = None,
) -> None:
    """Serve the dashboard of an app until SIGTERM or SIGINT (Ctrl-C).

    Without --token or --user it serves this machine only. To have it in a web app of your own, mount
    stepwell.web.Dashboard there.
    """
    check_level(log_level)
    missing = [part for part in _PARTS if find_spec(part) is None]
    if missing:
        raise ConfigError(f"the dashboard needs {' and '.join(missing)}: {how_to_install('web')}")

    from stepwell.web.access import ADMIN, OPERATOR, VIEWER
    from stepwell.web.serve import make_server

    roles = {"viewer": VIEWER, "operator": OPERATOR, "admin": ADMIN}
    if rights not in roles:
        raise UsageError(f"--rights is {rights!r}: it must be one of {', '.join(roles)}")
    if token is not None and user is not None:
        raise UsageError("--token and --user exclude each other: give one")
    if database is not None:
        os.environ[ENVIRONMENT] = database
    found = load_app(app)
    server = make_server(
        found,
        host=host,
        port=port,
        auth=token if user is None else _name_and_password(user),
        rights=roles[rights],
        redact=[*hidden_fields().names, *(redact or [])],
        trusted_proxy=trusted_proxy,
        title=title,
        log_level=(log_level or "info").lower(),
    )
    set_up_logging(log_level)
    _warn_if_unusable(found.database)
    with contextlib.suppress(SystemExit):  # uvicorn ends the process if it cannot listen
        server.run()
    if not server.started:
        complain(f"the dashboard could not be served on {host}:{port}: {_why_not(host, port)}")
        raise typer.Exit(1)


def _warn_if_unusable(database: Database) -> None:
    """The pages say so, too, and work as soon as the database does."""
    try:
        with translated(database):
            database.ensure_ready(wait=False)
    except StepwellError as error:
        warn(f"the dashboard has no data yet: {error}")


def _why_not(host: str, port: int) -> str:
    """Why the server could not listen there. uvicorn logs it, but does not tell."""
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except socket.gaierror:
        return "this name has no address. Give another with --host"
    except OSError as error:
        match error.errno:
            case errno.EADDRINUSE:
                return "the port is taken. Give another with --port"
            case errno.EADDRNOTAVAIL:
                return "this machine does not have this address. Give another with --host, such as 127.0.0.1"
            case errno.EACCES:
                return "this user may not listen on this port. Give another with --port, above 1023"
            case _:
                return str(error)
    return "the log above says why"


def _name_and_password(given: str) -> tuple[str, str]:
    name, colon, password = given.partition(":")
    if not (name and colon and password):
        raise UsageError("--user must be NAME:PASSWORD")
    return name, password
