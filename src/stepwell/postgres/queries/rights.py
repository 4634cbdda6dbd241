"""Calls that grant rights to roles, and read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from stepwell.postgres.queries.query import Act, Query, once

RoleKind = Literal["producer", "worker", "viewer", "operator"]


@dataclass(frozen=True, slots=True)
class Grant:
    """A grant: a role and the kind whose rights it has."""

    role: str
    kind: RoleKind
    granted_at: datetime


@dataclass(frozen=True, slots=True)
class Who:
    """The role of a connection, and the role that owns the schema."""

    role: str
    owner: str


def grant_role(role: str, kinds: Sequence[RoleKind]) -> Query[None]:
    return Query(
        "select stepwell.grant_role(%s::text, %s::text[])",
        (role, list(kinds)),
        act=Act("grant", f"role {role} as {', '.join(kinds)}", once),
    )


def revoke_role(role: str, kinds: Sequence[RoleKind] | None) -> Query[list[RoleKind]]:
    what = "everything" if kinds is None else ", ".join(kinds)
    return Query(
        "select stepwell.revoke_role(%s::text, %s::text[])",
        (role, None if kinds is None else list(kinds)),
        act=Act("revoke", f"role {role}: {what}", once),
    )


def grants() -> Query[Grant]:
    return Query("select role, kind, granted_at from stepwell.grantee order by role, kind", (), Grant)


def who() -> Query[Who]:
    """Any role may run this."""
    return Query(
        "select current_user::text, pg_catalog.pg_get_userbyid(n.nspowner)::text from pg_catalog.pg_namespace n"
        " where n.nspname = 'stepwell'::name",
        row=Who,
    )


def may_use_schema(role: str) -> Query[bool]:
    """Whether a role may use the schema: by its own grant, as a member of another role, or as a superuser."""
    return Query("select pg_catalog.has_schema_privilege(%s::text, 'stepwell', 'usage')", (role,))
