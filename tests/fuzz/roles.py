"""The roles that callers have, granted as `stepwell grant` does, and dropped after the round."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

ROLES: dict[str, list[str]] = {
    "producer": ["producer"],
    "worker": ["worker"],
    "viewer": ["viewer"],
    "operator": ["operator"],
    "python": ["producer", "viewer", "operator"],
}
"""Each with the kinds it is granted; the last is for the Python API."""
_ALLOWED = """
select p.proname from pg_proc p
where p.pronamespace = 'stepwell'::regnamespace and has_function_privilege(%s::name, p.oid, 'execute')
"""
_READABLE = """
select c.relname from pg_class c
where c.relnamespace = 'stepwell'::regnamespace and c.relkind = 'v' and has_table_privilege(%s::name, c.oid, 'select')
"""


@dataclass(frozen=True)
class Role:
    """A role, and what the database says it may do."""

    name: str
    functions: set[str]
    views: set[str]


@contextmanager
def granted_roles(conn: psycopg.Connection[Any]) -> Generator[dict[str, Role]]:
    """Make them for the database of this connection, whose owner it is."""
    names = {role: f"fuzz_{conn.info.dbname}_{role}" for role in ROLES}
    for name in names.values():
        conn.execute(sql.SQL("create role {}").format(sql.Identifier(name)))
    try:
        for role, name in names.items():
            conn.execute("select stepwell.grant_role(%s, %s)", (name, ROLES[role]))
        yield {
            role: Role(
                name,
                {row[0] for row in conn.execute(_ALLOWED, (name,))},
                {row[0] for row in conn.execute(_READABLE, (name,))},
            )
            for role, name in names.items()
        }
    finally:
        for name in names.values():
            conn.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
            conn.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))
