"""`stepwell grant`, `revoke` and `grants`."""

from __future__ import annotations

import shlex
from collections.abc import Generator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from cli.commands import Run
from psycopg import sql
from psycopg.conninfo import make_conninfo

from stepwell.postgres import migrate as migrating
from stepwell.postgres.migrate import Migration, migrations, newest


@pytest.fixture
def role(conn: psycopg.Connection[Any]) -> Generator[str]:
    name = f'a "B";{uuid4().hex[:8]}'
    conn.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
    yield name
    conn.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
    conn.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def test_a_role_is_granted_listed_and_revoked(run: Run, role: str) -> None:
    ran = run("grant", role, "--as", "worker", "--as", "operator")
    assert (ran.code, ran.out, ran.err) == (0, f"role {role} is an operator and a worker\n", "")
    listed = run("grants", "--json").json
    assert [(each["role"], each["kind"]) for each in listed] == [(role, "operator"), (role, "worker")]
    assert role in run("grants").out
    ran = run("revoke", role, "--as", "worker")
    assert (ran.code, ran.out) == (0, f"role {role} is an operator\n")
    ran = run("revoke", role)
    assert (ran.code, ran.out) == (0, f"role {role} may do nothing in schema stepwell any more\n")
    assert "no role is recorded" in run("grants").out


def test_a_producer_can_enqueue_by_the_command_and_is_told_what_it_may_not(run: Run, role: str, dsn: str) -> None:
    run("grant", role, "--as", "producer")
    theirs = make_conninfo(dsn, options="-c role=" + role.replace(" ", "\\ "))
    assert run("enqueue", "add", "-d", theirs).code == 0
    ran = run("queues", "-d", theirs)
    assert ran.code == 1
    assert ran.err.startswith(f"stepwell: role {role!r} may not read stepwell.queues in database ")
    assert ran.err.endswith(
        f": the owner of the schema, 'postgres', allows it with \"stepwell grant {shlex.quote(role)} --as viewer\"\n"
    )
    ran = run("pause", "mail", "-d", theirs)
    assert "may not call stepwell.pause in" in ran.err
    assert "--as operator" in ran.err
    ran = run("sizes", "set", "args", "2MB", "-d", theirs)
    assert ran.code == 1
    assert "(permission denied for function set_size_limit): connect as the owner of the schema, 'postgres'" in ran.err
    ran = run("grant", role, "--as", "operator", "-d", theirs)
    assert ran.code == 1
    assert (
        f"role {role!r} may not read or change the rights in schema stepwell: connect as the owner, 'postgres'"
        in ran.err
    )


def test_revoking_says_what_a_role_keeps(run: Run, role: str, conn: psycopg.Connection[Any]) -> None:
    run("grant", role, "--as", "producer")
    conn.execute(sql.SQL("grant execute on function stepwell.cancel to {}").format(sql.Identifier(role)))
    ran = run("revoke", role, "--as", "producer")
    assert ran.out.endswith(f'"stepwell revoke {shlex.quote(role)}" revokes those that were granted by hand\n')
    assert run("revoke", role).out == f"role {role} may do nothing in schema stepwell any more\n"
    assert "it owns the schema or is a superuser" in run("revoke", "postgres").out


def test_what_cannot_be_granted_is_refused(run: Run, role: str) -> None:
    assert "--as producer, --as worker" in run("grant", role).err
    ran = run("grant", role, "--as", "king")
    assert (ran.code, ran.err) == (
        2,
        "stepwell: --as is 'king': it must be one of producer, worker, viewer, operator\n",
    )
    ran = run("grant", "nobody at all", "--as", "worker")
    assert (ran.code, ran.err) == (
        1,
        "stepwell: this server has no role 'nobody at all': \"stepwell grants\" lists those that have rights, "
        '"create role" makes one\n',
    )


def test_migrating_says_who_was_granted_again(
    run: Run, role: str, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("grant", role, "--as", "worker")
    conn.execute("insert into stepwell.grantee (role, kind, role_id) values ('long gone', 'viewer', 1)")
    released = migrations()
    known = newest()
    later = Migration(known + 1, f"{known + 1:04}_next", "-- stepwell: compatible from 6\n")
    with monkeypatch.context() as upgraded:
        upgraded.setattr(migrating, "migrations", lambda: (*released, later))
        ran = run("migrate")
    assert ran.out.splitlines() == [
        f"applied {later.name}",
        f"role {role} keeps its rights as worker",
        "role long gone, which was viewer, was dropped or replaced by another of that name: to grant these rights "
        'again, "stepwell grant long gone --as viewer"',
    ]
    ran = run("migrate")
    assert ran.code == 0
    assert f"schema is at {known + 1}, newer than the {known} of this stepwell" in ran.out
    ran = run("schema", "version")
    assert (ran.code, ran.out) == (0, f"schema is at {known + 1}, this stepwell needs {known}\n")
    assert f"is at {known + 1}, newer than {known}, and works with this stepwell" in run("doctor").out
