"""Install Stepwell's schema from a Django migration.

Stepwell's migrator brings a schema of any version to the newest one, and functions are installed only with that. So
each Django migration asks for the newest: the first one that runs does all there is to do, and the others find it done.
There is one per version of the schema, so that `manage.py migrate` has something to run after each upgrade.
"""
# pyright: basic

from __future__ import annotations

from typing import Any

from django.db.migrations import RunPython

from stepwell.contrib.django.settings import read_settings
from stepwell.postgres import migrate


def to_newest_schema() -> RunPython:
    """Return the operation of every migration. There is no way back: no schema of Stepwell is downgraded."""
    return RunPython(_migrate)


def _migrate(_: Any, editor: Any) -> None:
    connection = editor.connection
    if connection.alias != read_settings().database:
        return
    with connection.cursor() as cursor:
        # Now Django's transaction has begun, and the migrator's own becomes a savepoint in it.
        cursor.execute("select 1")
    # Of psycopg 3, always: Django takes that wherever it is installed, and Stepwell needs it.
    migrate.migrate(connection.connection)
