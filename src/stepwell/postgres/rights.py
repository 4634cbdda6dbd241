"""Grant database roles the rights of producers, workers, viewers or operators.

sql/rights.sql lists the rights of each kind. A grant is recorded in the database, and `migrate` grants it again. Only
the owner of the schema may do this.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

import psycopg

from stepwell.errors import DatabaseError
from stepwell.postgres import queries
from stepwell.postgres.errors import stepwell_error
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.rights import Grant, RoleKind

KINDS: tuple[RoleKind, ...] = get_args(RoleKind)


def grant(connection: psycopg.Connection[Any], role: str, kinds: Sequence[RoleKind]) -> None:
    """Grant a role the rights of these kinds, and record that. The role keeps the rights it had before."""
    with _as_owner(connection), connection.transaction():
        fetch(connection, queries.rights.grant_role(role, kinds))


def revoke(connection: psycopg.Connection[Any], role: str, kinds: Sequence[RoleKind] | None = None) -> list[RoleKind]:
    """Revoke the rights of these kinds from a role, or, with None, all its rights on the schema. Returns the kinds that
    the role keeps, with all their rights."""
    with _as_owner(connection), connection.transaction():
        [left] = fetch(connection, queries.rights.revoke_role(role, kinds))
        return left


def grants(connection: psycopg.Connection[Any]) -> list[Grant]:
    with _as_owner(connection):
        return fetch(connection, queries.rights.grants())


@contextmanager
def _as_owner(connection: psycopg.Connection[Any]) -> Generator[None]:
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        [who] = fetch(connection, queries.rights.who())
        raise DatabaseError(
            f"role {who.role!r} may not read or change the rights in schema stepwell: connect as the owner, "
            f"{who.owner!r}, as a member of that role, or as a superuser"
        ) from error
    except psycopg.Error as error:
        if (ours := stepwell_error(error)) is not None:
            raise ours from error
        raise
