"""Saved views of the list of jobs: their names, their filters and their number."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb

from . import calls
from .calls import Connection


def save(conn: Connection, name: str, filters: object = None) -> bool:
    given = Jsonb({"state": "failed"} if filters is None else filters)
    return calls.one(conn.execute("select stepwell.save_view(%s, %s, 'ada')", (name, given)))


def test_a_name_is_taken_once_and_free_again_after_a_delete(conn: Connection) -> None:
    assert save(conn, "late")
    assert not save(conn, "late", {"queue": "mail"})
    [found] = calls.one(conn.execute("select stepwell.dashboard_views()"))["views"]
    assert (found["name"], found["filters"], found["saved_by"]) == ("late", {"state": "failed"}, "ada")
    assert calls.one(conn.execute("select stepwell.delete_view('late')"))
    assert not calls.one(conn.execute("select stepwell.delete_view('late')"))
    assert save(conn, "late", {"queue": "mail"})


@pytest.mark.parametrize("name", ["", " late", "a\nb", "x" * 101])
def test_an_odd_name_is_refused(conn: Connection, name: str) -> None:
    with pytest.raises(psycopg.Error, match="the name of a view has 1 to 100 characters"):
        save(conn, name)


@pytest.mark.parametrize("filters", [[], {"state": 1}, {"arg": "x" * 10_001}])
def test_filters_are_an_object_of_texts_with_a_bound(conn: Connection, filters: object) -> None:
    with pytest.raises(psycopg.Error, match="the filters of a view are a JSON object of texts"):
        save(conn, "late", filters)


def test_there_are_at_most_200_views(conn: Connection) -> None:
    for n in range(200):
        assert save(conn, f"view {n}")
    with pytest.raises(psycopg.Error, match="there are 200 saved views, which is the most: delete one"):
        save(conn, "one more")
    assert not save(conn, "view 7")
