"""`stepwell emit`: emit an event."""

from __future__ import annotations

from typing import Annotated

import typer

from stepwell.cli import parse
from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.options import ValueOption
from stepwell.cli.output import say
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.values.duration import describe


def emit(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The event's name.", show_default=False)],
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="KEY", help="The subject of the event, such as an order's id.")
    ] = None,
    value: ValueOption = None,
    keep: Annotated[
        str, typer.Option(metavar="DURATION", help="How long jobs that start to wait later still find the event.")
    ] = "30d",
    database: DatabaseOption = None,
) -> None:
    """Emit an event to the jobs that wait for it.

    These are all jobs that wait for its name and key with ctx.wait_for(), also those that start to wait later.
    """
    name, said = parse.name(name, "NAME"), parse.json_value(value, "--value")
    key = None if key is None else parse.name(key, "--key")
    kept = parse.duration(keep, "--keep")
    with connect(database) as connection:
        fetch(connection, queries.events.emit(name, key, said, kept))
    with_key = "" if key is None else f" with key {key!r}"
    say(f"emitted {name!r}{with_key}, kept for {describe(kept)}")
