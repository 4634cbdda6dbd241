"""`stepwell limits`: how large a value the database accepts."""

from __future__ import annotations

from typing import Annotated

import typer

from stepwell.cli import usage
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, dump, record, say, table
from stepwell.cli.session import DatabaseOption, session
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch

group = typer.Typer(help="How large a value the database accepts.", rich_markup_mode=None)


@group.callback(invoke_without_command=True)
def limits(context: typer.Context, json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List the limits on the size of values. They hold for every caller, in Python or SQL.

    args and metadata are those of a job; event and signal what is emitted or sent; result what a task returns; step the
    value of a step; job all that a worker is handed with one job: its args, metadata and saved steps.
    """
    if context.invoked_subcommand is not None:
        return
    with session(database) as connection:
        found = fetch(connection, queries.limits.size_limits())
    if json:
        dump([record(limit) for limit in found])
        return
    table(
        [Column("limit"), Column("size", right=True), Column("bytes", right=True)],
        ((limit.name, _size(limit.bytes), limit.bytes) for limit in found),
        empty="the database has no limits",
    )


@group.command("set")
def change(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The limit, as 'stepwell limits' lists it.", show_default=False)
    ],
    size: Annotated[
        str, typer.Argument(metavar="SIZE", help="The new limit, such as 100kB or 5MB.", show_default=False)
    ],
    database: DatabaseOption = None,
) -> None:
    """Change a limit, as the owner of the schema. It holds at once, for what is written from now on.

    Python has limits of its own: App(max_args_size=) and App(max_result_size=).
    """
    wanted = usage.size(size, "SIZE")
    with session(database) as connection:
        before = fetch(connection, queries.limits.set_size_limit(name, wanted))[0]
    say(f"the limit of {name} is {_size(wanted)}; it was {_size(before)}")


def _size(size: int) -> str:
    for unit, factor in (("GB", 1024**3), ("MB", 1024**2), ("kB", 1024)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} bytes"
