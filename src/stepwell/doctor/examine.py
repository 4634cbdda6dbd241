"""Run all checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg

from stepwell.doctor import database as of_database
from stepwell.doctor import fleet, jobs
from stepwell.doctor.finding import NOT_CHECKED, Finding
from stepwell.errors import DatabaseError
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.postgres.errors import in_short
from stepwell.postgres.fetch import fetch
from stepwell.values.duration import describe

Check = Callable[[psycopg.Connection[Any], Database], Finding]

_STATEMENT_LIMIT = 10.0
_CHECKS: dict[str, Check] = {
    "schema": of_database.check_schema,
    "notifications": of_database.check_notifications,
    "oldest ready job": jobs.check_oldest_ready,
    "dead rows": of_database.check_dead_rows,
    "oldest snapshot": of_database.check_snapshots,
    "unknown tasks": jobs.check_unknown_tasks,
    "misfits": jobs.check_misfits,
    "shared tasks": fleet.check_shared_tasks,
    "pauses": fleet.check_pauses,
    "schedules": jobs.check_schedules,
    "default partitions": of_database.check_default_partitions,
    "workers": fleet.check_leases,
}


def examine(database: Database) -> list[Finding]:
    """Run all checks in order. Raises only if the database cannot be reached at all."""
    with database.connect() as connection:
        fetch(connection, queries.health.limit_statements(_STATEMENT_LIMIT))
        return [replace(_run(check, connection, database), check=name) for name, check in _CHECKS.items()]


def _run(check: Check, connection: psycopg.Connection[Any], database: Database) -> Finding:
    try:
        return check(connection, database)
    except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction):
        return NOT_CHECKED
    except psycopg.errors.InsufficientPrivilege as error:
        [who] = fetch(connection, queries.rights.who())
        said = f"role {who.role!r} may not check this ({in_short(error)}): connect as the schema's owner, {who.owner!r}"
    except psycopg.errors.QueryCanceled:
        said = f"not checked: the query took longer than {describe(_STATEMENT_LIMIT)}"
    except DatabaseError as error:
        said = f"not checked: {error}"
    # Without knowing that the schema fits, the other checks mean nothing.
    return Finding("problem" if check is of_database.check_schema else "warning", said)
