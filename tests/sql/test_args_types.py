"""The args of a job that plain SQL enqueues may be json, jsonb or text, typed or not."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.types.json import Json, Jsonb

from . import calls
from .calls import Connection

WRITTEN: tuple[LiteralString, ...] = (
    """'{"a": 1}'""",
    """'{"a": 1}'::json""",
    """'{"a": 1}'::jsonb""",
    """'{"a": 1}'::text""",
    """'{"a": 1}'::varchar""",
    "json_build_object('a', 1)",
    "jsonb_build_object('a', 1)",
    "(select row_to_json(r) from (select 1 as a) r)",
)
CURSORS: tuple[tuple[type[psycopg.Cursor[Any]], LiteralString], ...] = (
    (psycopg.Cursor, "%s"),
    (psycopg.ClientCursor, "%s"),
    (psycopg.RawCursor, "$1"),
)


def args_of(conn: Connection, job_id: str) -> Any:
    return calls.one(conn.execute("select args from stepwell.jobs where id = %s", (job_id,)))


@pytest.mark.parametrize("written", WRITTEN)
def test_args_are_an_expression_of_any_of_these_types(conn: Connection, written: LiteralString) -> None:
    calls_: tuple[LiteralString, ...] = (
        "select stepwell.enqueue('ship', " + written + ")",
        "select stepwell.enqueue(args => " + written + ", task => 'ship')",
        "select stepwell.enqueue('ship', " + written + ", 'slow', priority => 3)",
    )
    for call in calls_:
        assert args_of(conn, calls.one(conn.execute(call))) == {"a": 1}


@pytest.mark.parametrize("given", ['{"a": 1}', Json({"a": 1}), Jsonb({"a": 1})])
@pytest.mark.parametrize(("cursor", "mark"), CURSORS)
def test_args_are_a_parameter_with_or_without_a_type(
    conn: Connection, cursor: type[psycopg.Cursor[Any]], mark: LiteralString, given: object
) -> None:
    for before in ("select stepwell.enqueue('ship', ", "select stepwell.enqueue(task => 'ship', args => "):
        assert args_of(conn, calls.one(cursor(conn).execute(before + mark + ")", [given]))) == {"a": 1}


@pytest.mark.parametrize("wrong", ["7", "true", "now()", "null", "null::jsonb", "'[1]'::jsonb", "array[1]"])
def test_args_of_another_type_are_refused(conn: Connection, wrong: LiteralString) -> None:
    with pytest.raises(psycopg.DataError):
        conn.execute("select stepwell.enqueue('ship', " + wrong + ")")


def test_json_and_text_are_kept_as_they_are_written(conn: Connection) -> None:
    written = '{"b":  1e22, "a": 1.50}'
    for cast in ("", "::json", "::text"):
        job_id = calls.one(conn.execute("select stepwell.enqueue('ship', %s" + cast + ")", (written,)))
        kept = calls.one(conn.execute("select args::text from stepwell.jobs where id = %s", (job_id,)))
        assert kept == written
