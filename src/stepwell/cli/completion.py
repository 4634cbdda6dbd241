"""Values that the shell completes: states, and the names of queues, tasks, workers, schedules and limits in use.

Names are read from the database. A shell waits for them while a person types, so a database that does not answer within
a second, or that may not be read, completes nothing and says nothing. An embedded Postgres is not started for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

import typer

from stepwell.cli.logs import FORMATS, LEVELS
from stepwell.embedded import embedded_path, is_embedded
from stepwell.postgres import queries, rights
from stepwell.postgres.address import ENVIRONMENT
from stepwell.postgres.database import Database
from stepwell.postgres.queries import Query
from stepwell.values.job import FINISHED, LIVE
from stepwell.web.reads import fleet, jobs

Row = TypeVar("Row")
Complete = Callable[[typer.Context, str], list[str]]

_PATIENCE = 1.0
# A completed name becomes part of a command line, and anybody who can enqueue a job can make a name such as $(reboot),
# or --all, which would be an option. zsh replaces =name by the path of a program.
_SAFE = re.compile(r"(?![-=])[\w@%+=:,./-]+")


def _fixed(values: Iterable[str]) -> Complete:
    found = list(values)

    def complete(_context: typer.Context, incomplete: str) -> list[str]:
        return [value for value in found if value.startswith(incomplete)]

    return complete


def _live(query: Callable[[], Query[Row]], names: Callable[[list[Row]], Iterable[str]]) -> Complete:
    def complete(context: typer.Context, incomplete: str) -> list[str]:
        found: list[str] = []
        with suppress(Exception):
            found = sorted(set(names(_read(context, query()))))
        return [name for name in found if name.startswith(incomplete) and _SAFE.fullmatch(name)]

    return complete


def _read(context: typer.Context, query: Query[Row]) -> list[Row]:
    url = _database_of(context)
    if url is None or (is_embedded(url) and not _runs(url)):
        return []
    database = Database(url, pool_size=1, create=False, call_timeout=_PATIENCE)
    try:
        return database.fetch(query, _PATIENCE)
    finally:
        database.close()


def _database_of(context: typer.Context) -> str | None:
    """The database as it is named so far: after the command, before it, or in the environment."""
    at: Any = context
    while at is not None:
        if at.params.get("database"):
            return str(at.params["database"])
        at = at.parent
    return os.environ.get(ENVIRONMENT) or None


def _runs(url: str) -> bool:
    from stepwell.embedded import EmbeddedPostgres, lifetime

    master = lifetime.postmaster(lifetime.home_of(EmbeddedPostgres(embedded_path(url)).path))
    return master is not None and lifetime.listener(master) is not None


complete_state = _fixed((*LIVE, *FINISHED))
complete_level = _fixed(LEVELS)
complete_format = _fixed(FORMATS)
complete_kind = _fixed(rights.KINDS)
complete_role = _fixed(("viewer", "operator", "admin"))
complete_queue = _live(lambda: jobs.names(None), lambda rows: rows[0]["queues"])
complete_task = _live(lambda: jobs.names(None), lambda rows: rows[0]["tasks"])
complete_worker = _live(fleet.workers, lambda rows: [worker["id"] for worker in rows[0]["workers"]])
complete_schedule = _live(fleet.schedules, lambda rows: [schedule["name"] for schedule in rows[0]["schedules"]])
complete_limit = _live(queries.limits.limits, lambda rows: [limit.key for limit in rows])
