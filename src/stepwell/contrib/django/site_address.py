"""The address of Stepwell's database: one of Django's DATABASES as a connection string for psycopg."""
# pyright: basic

from __future__ import annotations

from typing import Any

from django.db import connections
from psycopg import pq
from psycopg.conninfo import make_conninfo

from stepwell.errors import ConfigError
from stepwell.postgres.address import Address


class SiteAddress(Address):
    """One of DATABASES. It is read when a connection is first needed: Django's test runner changes its name before."""

    migrate_command = "python manage.py migrate"

    def __init__(self, alias: str) -> None:
        self.alias = alias
        super().__init__(None)

    @property
    def given(self) -> str | None:
        return connection_string(self.alias)

    @given.setter
    def given(self, _: str | None) -> None:
        pass


def connection_string(alias: str) -> str:
    """Return the connection string of a database of Django, without options that only Django or its driver reads."""
    connection: Any = connections[alias]
    if connection.vendor != "postgresql":
        raise ConfigError(
            f"database {alias!r} of DATABASES is of vendor {connection.vendor!r}, and Stepwell needs PostgreSQL: name "
            "another with STEPWELL = {'database': ...}"
        )
    keywords = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    parameters = {
        name: value
        for name, value in connection.get_connection_params().items()
        if name in keywords and value is not None
    }
    if role := connection.settings_dict["OPTIONS"].get("assume_role"):
        # Spaces separate options, and a backslash makes one part of a name.
        escaped = str(role).replace("\\", "\\\\").replace(" ", "\\ ")
        parameters["options"] = f"{parameters.get('options', '')} -c role={escaped}".strip()
    return make_conninfo(**parameters)
