"""`stepwell emit`: emit an event."""

from __future__ import annotations

from typing import Annotated

import typer

from stepwell.cli import usage
from stepwell.cli.options import ValueOption
from stepwell.cli.output import say
from stepwell.cli.session import DatabaseOption, session
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.values.duration import describe


def emit(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The event's name.", show_default=False)],
    key: Annotated[str | None, typer.Option("--key", "-k", metavar="KEY", help="What it is about.")] = None,
    value: ValueOption = None,
    keep: Annotated[str, typer.Option(metavar="LENGTH", help="For waits that begin later: 30s, 7d.")] = "30d",
    database: DatabaseOption = None,
) -> None:
    """Emit an event: jobs that wait for this name and key by ctx.wait_for go on, and those that begin to wait later
    find it for as long as it is kept."""
    named, said = usage.event_name(name, "NAME"), usage.json_value(value, "--value")
    about = None if key is None else usage.event_name(key, "--key")
    kept = usage.length(keep, "--keep")
    with session(database) as connection:
        fetch(connection, queries.steps.emit(named, about, said, kept))
    about_it = "" if about is None else f" with key {about!r}"
    say(f"emitted {named!r}{about_it}, kept for {describe(kept)}")
