"""Arrays come to Postgres as they were, whatever is in them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell.postgres.queries.arrays import bare, shared, texts, times

_settings = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
_text = st.text(st.characters(exclude_characters="\0", codec="utf-8"))
_nasty = st.sampled_from(
    ["", "NULL", "null", '"', "\\", '\\"', "{}", "{", ",", "a,b", " x ", "\n", "'", "\\x00", "ü€😀", "%s"]
)


@_settings
@given(st.lists(st.none() | _text | _nasty, min_size=1))
def test_texts_come_through(conn: psycopg.Connection[Any], given: list[str | None]) -> None:
    assert conn.execute("select %s::text[]", (texts(given),)).fetchone() == (given,)


@pytest.mark.slow
@_settings
@given(st.lists(st.none() | st.floats(allow_nan=False), min_size=1))
def test_numbers_come_through(conn: psycopg.Connection[Any], numbers: list[float | None]) -> None:
    assert conn.execute("select %s::double precision[]", (bare(numbers),)).fetchone() == (numbers,)


def test_ids_and_special_numbers_come_through(conn: psycopg.Connection[Any]) -> None:
    ids = [uuid4() for _ in range(3)]
    assert conn.execute("select %s::uuid[]", (bare([str(one) for one in ids]),)).fetchone() == (ids,)
    assert conn.execute("select %s::float8[], %s::int[]", (bare([math.inf]), bare([]))).fetchone() == ([math.inf], [])


def test_times_of_any_zone_and_switches_come_through(conn: psycopg.Connection[Any]) -> None:
    given = [datetime(2026, 3, 1, 12, 30, 5, 123456, zone) for zone in (UTC, timezone(timedelta(hours=-3, seconds=28)))]
    assert conn.execute("select %s::timestamptz[]", (times([*given, None]),)).fetchone() == ([*given, None],)
    assert conn.execute("select %s::boolean[]", (bare([True, False, None]),)).fetchone() == ([True, False, None],)


def test_an_option_that_all_have_is_written_once() -> None:
    assert (shared([None, None]), shared([1, 1]), shared([1, None])) == (None, "{1}", "{1,NULL}")
    assert shared(["a", "a"], texts) == '{"a"}'


def test_text_that_cannot_be_kept_is_refused_as_psycopg_refuses_it(conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        conn.execute("select %s::text[]", (texts(["a\0b"]),))
    with pytest.raises(UnicodeEncodeError):
        conn.execute("select %s::text[]", (texts(["\ud800"]),))


def test_text_travels_in_the_encoding_of_the_connection(conn: psycopg.Connection[Any]) -> None:
    conn.execute("set client_encoding to latin1")
    found = conn.execute(
        "select %s::text[], encode(convert_to((%s::text[])[1], 'utf8'), 'hex')", (texts(["ü"]), texts(["ü"]))
    )
    assert found.fetchone() == (["ü"], "c3bc")
