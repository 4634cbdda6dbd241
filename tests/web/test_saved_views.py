"""Saved views of the list of jobs: somebody names filters, and everybody finds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from web.site import HOSTILE, OURS, Site, served

from stepwell import App
from stepwell.web import OPERATOR, VIEWER, Dashboard, User

JSON = {**OURS, "Accept": "application/json"}


@pytest.fixture(scope="module")
def open_site(shop: App) -> Iterator[Site]:
    """A dashboard that hides nothing, for ada, who is an operator, and eve, who may only look."""

    def who(request: Any) -> User:
        name = request.headers.get("x-name", "ada")
        return User(name, VIEWER if name == "eve" else OPERATOR)

    with served(Dashboard(shop, auth=who)) as found:
        yield found


def names(site: Site) -> list[str]:
    return [view["name"] for view in site.json("/views")["views"]]


def test_a_saved_view_is_found_on_the_list_of_jobs_and_recorded(open_site: Site) -> None:
    filters = {"state": "failed", "task": "greet", "since": "2h", "sort": "oldest"}
    came_from = "/jobs?" + urlencode(filters)
    answer = open_site.post("/views/save", {**filters, "name": " late mail ", "back": came_from})
    assert (answer.status, answer.headers["location"], answer.said) == (303, came_from, "The view late mail is saved.")
    [view] = [each for each in open_site.json("/views")["views"] if each["name"] == "late mail"]
    assert (view["filters"], view["saved_by"], view["url"]) == (filters, "ada", came_from)
    # It is chosen, so there is nothing to save.
    page = open_site.get(view["url"]).text
    assert 'aria-current="true">late mail</a>' in page
    assert "Save this view" not in page
    assert "Save this view" in open_site.get("/jobs?state=failed&queue=another").text
    assert ">late mail</a>" in open_site.get("/jobs", x_name="eve").text
    act = open_site.json("/audit?act=save")["acts"][0]
    assert (act["who"], act["target"], act["count"]) == ("ada", "view late mail", 1)

    taken = open_site.post("/views/save", {"state": "ready", "name": "late mail"}, JSON)
    assert (taken.status, taken.json["ok"]) == (409, False)
    assert "There is a view late mail already" in taken.json["said"]
    deleted = open_site.post("/views/delete", {"name": "late mail"}, JSON)
    assert (deleted.status, deleted.json["said"]) == (200, "The view late mail is deleted.")
    assert "late mail" not in names(open_site)
    assert open_site.post("/views/delete", {"name": "late mail"}, JSON).status == 409
    assert open_site.json("/audit?act=delete")["acts"][0]["target"] == "view late mail"


def test_a_viewer_can_neither_save_nor_delete_a_view(open_site: Site) -> None:
    eve = {**JSON, "X-Name": "eve"}
    assert open_site.post("/views/save", {"state": "failed", "name": "mine"}).status == 303
    for path in ("/views/save", "/views/delete"):
        answer = open_site.post(path, {"state": "failed", "name": "mine"}, eve)
        assert (answer.status, "it needs the right 'save'" in answer.text) == (403, True)
    page = open_site.get("/views", x_name="eve").text
    assert ("mine" in page, "Delete" in page) == (True, False)
    assert "Save this view" not in open_site.get("/jobs?state=ready", x_name="eve").text
    assert open_site.post("/views/delete", {"name": "mine"}, {}).status == 403
    assert "mine" in names(open_site)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"name": "x"}, "there is no filter to save"),
        ({"state": "failed"}, "the form has no 'name'"),
        ({"state": "failed", "name": "x" * 101}, "1 to 100 characters"),
        ({"state": "odd", "name": "x"}, "state is 'odd'"),
        ({"arg": "n=" + "x" * 6000, "error": "x" * 6000, "name": "x"}, "less than 10 kB"),
    ],
)
def test_what_cannot_be_saved_is_said(open_site: Site, form: dict[str, str], said: str) -> None:
    answer = open_site.post("/views/save", form, JSON)
    assert (answer.status, said in answer.text) == (400, True), answer.text


def test_a_hostile_name_is_shown_as_text(open_site: Site) -> None:
    assert open_site.post("/views/save", {"queue": HOSTILE, "name": HOSTILE}).status == 303
    for path in ("/views", "/jobs"):
        page = open_site.get(path).text
        assert HOSTILE not in page
        assert "&lt;script&gt;alert" in page


def test_a_view_of_a_field_that_is_hidden_here_is_left_out(open_site: Site, site: Site) -> None:
    form = {"metadata": "password=hunter2", "name": "by secret"}
    assert site.post("/views/save", form, JSON).status == 400
    assert open_site.post("/views/save", form).status == 303
    assert "by secret" in names(open_site)
    assert "by secret" not in names(site)
    assert "hunter2" not in site.get("/jobs").text
