"""`stepwell schema`: inspect the schema."""

from __future__ import annotations

from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.group import new_group
from stepwell.cli.output import say
from stepwell.postgres import migrate

group = new_group("Inspect the schema.")


@group.command()
def version(database: DatabaseOption = None) -> None:
    """Print the schema's version and the one needed here.

    The exit code is 1 if they do not work together.
    """
    with connect(database, any_schema=True) as connection:
        found = migrate.current(connection)
        say(f"schema is at {found}, this stepwell needs {migrate.newest()}")
        migrate.check(connection)
