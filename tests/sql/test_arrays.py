"""Arrays come to Postgres as they were, whatever is in them."""

from __future__ import annotations

import math
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.array import ListDumper

from stepwell.queries.arrays import Bare, Texts

_settings = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
_text = st.text(st.characters(exclude_characters="\0", codec="utf-8"))
_nasty = st.sampled_from(
    ["", "NULL", "null", '"', "\\", '\\"', "{}", "{", ",", "a,b", " x ", "\n", "'", "\\x00", "ü€😀", "%s"]
)


@_settings
@given(st.lists(st.none() | _text | _nasty, min_size=1))
def test_texts_come_through(conn: psycopg.Connection[Any], texts: list[str | None]) -> None:
    assert conn.execute("select %s::text[]", (Texts(texts),)).fetchone() == (texts,)


@_settings
@given(st.lists(st.none() | st.floats(allow_nan=False), min_size=1))
def test_numbers_come_through(conn: psycopg.Connection[Any], numbers: list[float | None]) -> None:
    assert conn.execute("select %s::double precision[]", (Bare(numbers),)).fetchone() == (numbers,)


def test_ids_and_special_numbers_come_through(conn: psycopg.Connection[Any]) -> None:
    ids = [uuid4() for _ in range(3)]
    assert conn.execute("select %s::uuid[]", (Bare([str(one) for one in ids]),)).fetchone() == (ids,)
    assert conn.execute("select %s::float8[], %s::int[]", (Bare([math.inf]), Bare([]))).fetchone() == ([math.inf], [])


def test_text_that_cannot_be_kept_is_refused_as_psycopg_refuses_it(conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        conn.execute("select %s::text[]", (Texts(["a\0b"]),))
    with pytest.raises(UnicodeEncodeError):
        conn.execute("select %s::text[]", (Texts(["\ud800"]),))


def test_a_connection_that_does_not_know_them_takes_them_as_lists(conn: psycopg.Connection[Any]) -> None:
    for kind in (Texts, Bare):
        conn.adapters.register_dumper(kind, ListDumper)
    found = conn.execute("select %s::text[], %s::int[]", (Texts(["a", None, '"']), Bare([1, 2]))).fetchone()
    assert found == (["a", None, '"'], [1, 2])


def test_text_travels_in_the_encoding_of_the_connection(conn: psycopg.Connection[Any]) -> None:
    conn.execute("set client_encoding to latin1")
    found = conn.execute(
        "select %s::text[], encode(convert_to((%s::text[])[1], 'utf8'), 'hex')", (Texts(["ü"]), Texts(["ü"]))
    )
    assert found.fetchone() == (["ü"], "c3bc")
