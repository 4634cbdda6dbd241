"""The audit: rows are added, and pruned after a year, and nothing else."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from . import calls
from .calls import Connection


def record(conn: Connection, act: str = "pause", *, who: str = "ada", bulk: str | None = None, count: int = 1) -> None:
    conn.execute("select stepwell.record_act(%s, 'cli', %s, 'queue mail', %s, %s)", (who, act, count, bulk))


def page(conn: Connection, **options: Any) -> dict[str, Any]:
    given = ", ".join(f"_{name} => %({name})s" for name in options)
    return calls.one(conn.execute(f"select stepwell.dashboard_audit({given})", options))  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_the_batches_of_one_person_are_added_up_and_no_one_elses(conn: Connection) -> None:
    bulk = str(uuid4())
    record(conn, bulk=bulk, count=3)
    record(conn, bulk=bulk, count=4)
    record(conn, bulk=bulk, who="mallory", count=1000)
    record(conn, "resume", bulk=bulk, count=1000)
    assert [(act["who"], act["count"]) for act in page(conn)["acts"]] == [("ada", 7)]


def test_a_long_search_stops_and_says_where(conn: Connection) -> None:
    conn.execute(
        "insert into stepwell.audit (at, who, via, role, act, target, count)"
        " select now(), case when n = 1 then 'ada' else 'x' end, 'web', '', 'pause', '', 1"
        " from generate_series(1, 20500) n"
    )
    first = page(conn, who="ada")
    assert (first["acts"], first["looked"]) == ([], 20000)
    rest = page(conn, who="ada", before=first["next"])
    assert (len(rest["acts"]), rest["next"]) == (1, None)


def test_acts_are_kept_for_a_year_at_least(conn: Connection) -> None:
    record(conn)
    conn.execute("insert into stepwell.clock select now() + interval '364 days'")
    assert calls.one(conn.execute("select stepwell.prune_audit(_keep => 0)")) == 0
    conn.execute("update stepwell.clock set at = at + interval '2 days'")
    record(conn)
    assert calls.one(conn.execute("select stepwell.prune_audit()")) == 1
    assert len(page(conn)["acts"]) == 1


@pytest.mark.parametrize("kind", ["operator", "worker", "producer", "viewer"])
def test_no_role_may_change_what_is_recorded(conn: Connection, kind: str) -> None:
    record(conn)
    role = f"audited_{uuid4().hex[:8]}"
    conn.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
    try:
        conn.execute("select stepwell.grant_role(%s, %s)", (role, [kind]))
        for statement in (
            "update stepwell.audit set who = 'x'",
            "delete from stepwell.audit",
            "truncate stepwell.audit",
        ):
            with conn.transaction(force_rollback=True):
                conn.execute(sql.SQL("set local role {}").format(sql.Identifier(role)))
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute(statement.encode())
    finally:
        conn.execute("select stepwell.revoke_role(%s, null)", (role,))
        conn.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
    assert [act["who"] for act in page(conn)["acts"]] == ["ada"]


def test_nothing_that_is_given_breaks_it(conn: Connection) -> None:
    conn.execute("select stepwell.record_act(null, null, null, null, null)")
    conn.execute("select stepwell.record_act(%s, %s, %s, %s, -5)", ["é" * 5000] * 4)
    text = json.dumps(page(conn, limit=100000))
    assert len(text) < 20000
