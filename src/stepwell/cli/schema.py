"""`stepwell schema`: what the database has, and what this stepwell needs."""

from __future__ import annotations

from stepwell.cli.group import new_group
from stepwell.cli.output import say
from stepwell.cli.session import DatabaseOption, session
from stepwell.postgres import migrate

group = new_group("The schema in the database.")


@group.command()
def version(database: DatabaseOption = None) -> None:
    """Print the schema's version and the one that this stepwell needs; exit code 1 if they do not work together."""
    with session(database, any_schema=True) as connection:
        found = migrate.current(connection)
        say(f"schema is at {found}, this stepwell needs {migrate.newest()}")
        migrate.check(connection)
