"""`stepwell sizes`: the sizes of values that the database accepts."""

from __future__ import annotations

from typing import Annotated

import typer

from stepwell.cli import parse
from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, dump, record, say, table
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch

group = typer.Typer(rich_markup_mode=None)


@group.callback(invoke_without_command=True)
def sizes(context: typer.Context, json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List or change the size limits of values.

    They hold for every caller, in Python and SQL. args and metadata limit those of a job, event and signal the value
    that is emitted or sent, result what a task returns, step the value of a step, progress what a job reports, and job
    all that a worker receives with one job: args, metadata and saved steps.
    """
    if context.invoked_subcommand is not None:
        return
    with connect(database) as connection:
        found = fetch(connection, queries.sizes.size_limits())
    if json:
        dump([record(limit) for limit in found])
        return
    table(
        found,
        [
            Column("limit", lambda limit: limit.name),
            Column("size", lambda limit: _size(limit.bytes), right=True),
            Column("bytes", lambda limit: limit.bytes, right=True),
        ],
        empty="the database has no limits",
    )


@group.command("set")
def change(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The limit; 'stepwell sizes' lists them.", show_default=False)
    ],
    size: Annotated[
        str, typer.Argument(metavar="SIZE", help="The new limit, such as 100kB or 5MB.", show_default=False)
    ],
    database: DatabaseOption = None,
) -> None:
    """Change a limit. Only the owner of the schema can do this.

    The new limit takes effect at once, for values written from then on. Python has limits of its own:
    App(max_args_size=) and App(max_result_size=).
    """
    wanted = parse.size(size, "SIZE")
    with connect(database) as connection:
        before = fetch(connection, queries.sizes.set_size_limit(name, wanted))[0]
    say(f"the limit of {name} is {_size(wanted)}; it was {_size(before)}")


def _size(size: int) -> str:
    for unit, factor in (("GB", 1024**3), ("MB", 1024**2), ("kB", 1024)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} bytes"
