"""`stepwell grant`, `revoke` and `grants`: what roles of the database may do."""

from __future__ import annotations

import shlex
from typing import Annotated, cast

import typer

from stepwell.cli.options import JsonOption
from stepwell.cli.output import Column, dump, local, record, say, table
from stepwell.cli.session import DatabaseOption, session
from stepwell.cli.usage import Usage
from stepwell.postgres import queries, rights
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.rights import Kind

RoleArgument = Annotated[
    str, typer.Argument(metavar="ROLE", help="A role of the database, by its name.", show_default=False)
]
KindsOption = Annotated[
    list[str] | None,
    typer.Option("--as", metavar="KIND", help=f"{', '.join(rights.KINDS)}. May be repeated.", show_default=False),
]


def grant(role: RoleArgument, kinds: KindsOption = None, database: DatabaseOption = None) -> None:
    """Let a role be a producer, worker, viewer or operator. Recorded, so that "stepwell migrate" grants it again.

    A producer enqueues, awaits results, emits and sends. A worker runs jobs, and may do what a producer does. A viewer
    reads the views. An operator is a viewer who may cancel, retry, pause, stop, and change schedules. For the owner of
    the schema only.
    """
    if not kinds:
        raise Usage(f"grant a role what? Give --as {', --as '.join(rights.KINDS)}, or several of them")
    wanted = _read(kinds)
    with session(database) as connection:
        rights.grant(connection, role, wanted)
    say(f"role {role} is {_named(wanted)}")


def revoke(role: RoleArgument, kinds: KindsOption = None, database: DatabaseOption = None) -> None:
    """Take from a role what "stepwell grant" gave it; without --as all that it may do here, granted by hand or not."""
    with session(database) as connection:
        left = rights.revoke(connection, role, _read(kinds) if kinds else None)
        may_use = fetch(connection, queries.rights.may_use_schema(role))[0]
    if left:
        say(f"role {role} is {_named(left)}")
    elif not may_use:
        say(f"role {role} may do nothing in schema stepwell any more")
    elif kinds:
        say(
            f"role {role} has no recorded grant any more, but still some rights: what was granted by hand, "
            f'"stepwell revoke {shlex.quote(role)}" takes'
        )
    else:
        say(
            f"role {role} has no grant any more, but still some rights: it owns the schema or is a superuser, or is a "
            "member of a role that has them"
        )


def grants(json: JsonOption = False, database: DatabaseOption = None) -> None:
    """List the roles that were granted something by "stepwell grant"."""
    with session(database) as connection:
        found = rights.grants(connection)
    if json:
        dump([record(each) for each in found])
        return
    table(
        [Column("role", cut=True), Column("as"), Column("granted")],
        ((each.role, each.kind, local(each.granted_at)) for each in found),
        empty='no role is recorded: see "stepwell grant --help"',
    )


def _read(typed: list[str]) -> list[Kind]:
    for kind in typed:
        if kind not in rights.KINDS:
            raise Usage(f"--as is {kind!r}: it is one of {', '.join(rights.KINDS)}")
    return cast("list[Kind]", sorted(set(typed)))


def _named(kinds: list[Kind]) -> str:
    return " and ".join(f"an {kind}" if kind == "operator" else f"a {kind}" for kind in kinds)
