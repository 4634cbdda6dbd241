"""`stepwell grant`, `revoke` and `grants`: the rights of database roles."""

from __future__ import annotations

import shlex
from typing import Annotated, cast

import typer

from stepwell.cli.completion import complete_kind
from stepwell.cli.database import DatabaseOption, connect
from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, dump, record, say, table
from stepwell.cli.parse import UsageError
from stepwell.postgres import queries, rights
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.rights import RoleKind
from stepwell.values.duration import local_time

RoleArgument = Annotated[str, typer.Argument(metavar="ROLE", help="The name of a database role.", show_default=False)]
KindsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--as",
        autocompletion=complete_kind,
        metavar="KIND",
        help=f"{', '.join(rights.KINDS)}. Repeatable.",
        show_default=False,
    ),
]


def grant(role: RoleArgument, kinds: KindsOption = None, database: DatabaseOption = None) -> None:
    """Grant a database role rights in the schema.

    A producer enqueues jobs, waits for results, emits events and sends signals. A worker runs jobs and has the rights
    of a producer. A viewer reads the views. An operator is a viewer who may also cancel, retry, pause, stop and change
    schedules. Grants are recorded, so that "stepwell migrate" extends them to new functions. Only the owner of the
    schema can grant.
    """
    if not kinds:
        raise UsageError(f"grant what? Give --as {', --as '.join(rights.KINDS)}, or several of them")
    wanted = _read(kinds)
    with connect(database) as connection:
        rights.grant(connection, role, wanted)
    say(f"role {role} is {_named(wanted)}")


def revoke(role: RoleArgument, kinds: KindsOption = None, database: DatabaseOption = None) -> None:
    """Revoke rights that "stepwell grant" gave a role.

    Without --as, this revokes all rights of the role in the schema, also those granted by hand.
    """
    with connect(database) as connection:
        left = rights.revoke(connection, role, _read(kinds) if kinds else None)
        may_use = fetch(connection, queries.rights.may_use_schema(role))[0]
    if left:
        say(f"role {role} is {_named(left)}")
    elif not may_use:
        say(f"role {role} may do nothing in schema stepwell any more")
    elif kinds:
        say(
            f"role {role} has no recorded grant any more, but still some rights: "
            f'"stepwell revoke {shlex.quote(role)}" revokes those that were granted by hand'
        )
    else:
        say(
            f"role {role} has no grant any more, but still some rights: it owns the schema or is a superuser, or is a "
            "member of a role that has them"
        )


def grants(json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List the grants made by "stepwell grant"."""
    with connect(database) as connection:
        found = rights.grants(connection)
    if json:
        dump([record(each) for each in found])
        return
    table(
        found,
        [
            Column("role", lambda grant: grant.role, cut=True),
            Column("as", lambda grant: grant.kind),
            Column("granted", lambda grant: local_time(grant.granted_at)),
        ],
        empty='no role is recorded: see "stepwell grant --help"',
    )


def _read(typed: list[str]) -> list[RoleKind]:
    for kind in typed:
        if kind not in rights.KINDS:
            raise UsageError(f"--as is {kind!r}: it must be one of {', '.join(rights.KINDS)}")
    return cast("list[RoleKind]", sorted(set(typed)))


def _named(kinds: list[RoleKind]) -> str:
    return " and ".join(f"an {kind}" if kind == "operator" else f"a {kind}" for kind in kinds)
