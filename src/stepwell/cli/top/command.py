"""The command `stepwell top`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Annotated

import typer
from psycopg.conninfo import conninfo_to_dict

from stepwell.app import App
from stepwell.cli import parse
from stepwell.cli.database import DatabaseOption, open_database
from stepwell.cli.options import JsonOption
from stepwell.cli.parse import UsageError
from stepwell.cli.top.once import print_json, print_view
from stepwell.cli.top.view import read_view
from stepwell.errors import ConfigError
from stepwell.errors.text import how_to_install
from stepwell.postgres.query_plan import run

_SHORTEST = 0.2
_CALL_TIMEOUT = "5s"


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one view and end. Needs no Textual.")] = False,
    json: JsonOption = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer nothing that changes something.")] = False,
    interval: Annotated[
        str, typer.Option("--interval", "-i", metavar="DURATION", help="Read again after this long.")
    ] = "2s",
    database: DatabaseOption = None,
) -> None:
    """Watch queues, jobs, workers and failures in the terminal.

    Press ? for the keys. Capital letters change something, and ask first. With --once it prints what it would show, and
    with --json too, for programs.
    """
    every = parse.duration(interval, "--interval")
    if every < _SHORTEST:
        raise UsageError(f"--interval is {interval!r}: the shortest is {_SHORTEST:g}s")
    if json and not once:
        raise UsageError("--json needs --once: the screen is for people")
    if not once:
        if find_spec("textual") is None:
            raise ConfigError(
                f"the screen needs textual: {how_to_install('top')}; or print one view with stepwell top --once"
            )
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError("there is no terminal for the screen: print one view with stepwell top --once")
    with open_database(database) as found:
        view = run(read_view(), found)
        if once:
            (print_json if json else print_view)(view)
            return
        with App(database, call_timeout=_CALL_TIMEOUT) as app:
            _run(app, "embedded" if found.is_embedded else _where(found.dsn), every, read_only=read_only)


def _run(app: App, where: str, every: float, *, read_only: bool) -> None:
    from stepwell.cli.top.screen import Top

    Top(app, where, interval=every, read_only=read_only).run()


def _where(dsn: str) -> str:
    """The server and the database, without the user's password."""
    parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    host = parts.get("host", "")
    server = "" if host.startswith("/") else ":".join(part for part in (host, parts.get("port")) if part)
    return "/".join(part for part in (server, parts.get("dbname")) if part)
