"""Acts on all jobs that match, moves, deletes and exports, over HTTP."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import psycopg
import pytest
from web.site import HOSTILE, OURS, Site, served

from stepwell import App, JobHandle
from stepwell.postgres import queries
from stepwell.web import OPERATOR, Dashboard

ODD = "a/b.c%d ?&#<i>é"
BIG = 9007199254740993
AS_JSON = {**OURS, "Accept": "application/json"}


@pytest.fixture
def queue() -> str:
    """A queue of this test's own, with an odd name."""
    return f"{ODD}{uuid4().hex[:8]}"


@pytest.fixture
def new(shop: App, queue: str) -> Callable[..., JobHandle[Any]]:
    def new(name: str = "Ada", **options: Any) -> JobHandle[Any]:
        return shop.tasks["greet"].using(queue=queue, delay="1h", **options).enqueue(name)

    return new


New = Callable[..., JobHandle[Any]]


def fields_of(page: str) -> dict[str, str]:
    """The hidden fields of the form that confirms."""
    form = page.partition('id="confirm-bulk"')[2].partition("</form>")[0]
    return {
        html.unescape(name): html.unescape(value)
        for name, value in re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', form)
    }


def work_off(app: App, bulk: str) -> None:
    while app.database.fetch(queries.bulk.chunk(bulk))[0].state == "running":
        pass


def state_of(job: JobHandle[Any]) -> str | None:
    info = job.info()
    return None if info is None else info.state


def test_all_that_match_are_previewed_confirmed_and_changed(site: Site, shop: App, queue: str, new: New) -> None:
    jobs = [new(HOSTILE) for _ in range(7)]
    other = shop.tasks["greet"].using(delay="1h", queue="other").enqueue("x")
    listed = site.get("/jobs?" + _query(queue=queue, state="scheduled", since="2h")).text
    link = html.unescape(re.findall(r'id="all-cancel" href="([^"]*)"', listed)[0])
    assert 'id="all-delete"' not in listed, "scheduled jobs cannot be deleted"
    page = site.get(link).text
    assert ('<span id="count">7</span>' in page, page.count('class="id"')) == (True, 5)
    assert HOSTILE not in page
    assert "<i>é" not in page
    fields = fields_of(page)
    assert fields["since"] != "2h", "it must mean the same when the form is sent"
    late = new("late")
    refused = site.post("/bulk/cancel", {**fields, "count": "8"})
    assert (refused.status, "is not the number" in refused.text) == (409, True)
    answer = site.post("/bulk/cancel", {**fields, "count": "7", "reason": "enough"})
    location = answer.headers["location"]
    bulk = location.removeprefix("/bulk/").partition("?")[0]
    assert [state_of(job) for job in jobs] == ["scheduled"] * 7
    listed = site.get("/jobs").text
    assert f'id="bulk-{bulk}"' in listed, "the list shows the progress"
    progress = site.get(location).text
    assert 'max="7" value="0"' in progress
    assert f"stepwell bulk continue {bulk}" in progress, "no worker is alive"
    assert f'href="{html.escape(fields["back"])}"' in progress, "the filters are kept"
    work_off(shop, bulk)
    assert [state_of(job) for job in (*jobs, late, other)] == ["cancelled"] * 7 + ["scheduled"] * 2
    done = site.json(f"/bulk/{bulk}")
    assert (done["state"], done["done"], done["expected"], done["became"]) == ("done", 7, 7, {"cancelled": 7})
    assert done["asked_by"] == "local, in the dashboard"
    assert done["filter"]["queue"] == queue
    info = jobs[0].info()
    assert info is not None
    assert info.error == "enough"


def _query(**given: str) -> str:
    return urlencode(given)


def test_programs_confirm_the_number_too(site: Site, shop: App, queue: str, new: New) -> None:
    job = new()
    found = site.json("/jobs/bulk?" + _query(act="run", queue=queue))
    assert (found["count"], found["more"], found["states"]) == (1, False, ["scheduled", "waiting"])
    assert site.post("/bulk/run", {"queue": queue}, AS_JSON).status == 400
    refused = site.post("/bulk/run", {"queue": queue, "count": "0"}, AS_JSON)
    assert (refused.status, "1 jobs match, and 0 were confirmed" in refused.json["error"]) == (409, True)
    answer = site.post("/bulk/run", {"queue": queue, "count": "1", "as_of": found["as_of"]}, AS_JSON)
    work_off(shop, answer.json["bulk"])
    assert state_of(job) == "ready"


def test_a_number_of_jobs_that_is_not_the_whole_is_confirmed_as_such(site: Site, shop: App, queue: str) -> None:
    with psycopg.connect(shop.dsn, autocommit=True) as conn:
        conn.execute(
            "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args) select stepwell.uuid7(),"
            " now() + interval '1 hour', now(), 'scheduled', 'work', %s, '{}' from generate_series(1, 10002)",
            (queue,),
        )
        found = site.json("/jobs/bulk?" + _query(act="cancel", queue=queue))
        assert (found["count"] > 0, found["more"]) == (True, True)
        form = {"queue": queue, "count": "10000", "as_of": found["as_of"]}
        refused = site.post("/bulk/cancel", form, AS_JSON)
        assert (refused.status, "confirm that number, with more=1" in refused.json["error"]) == (409, True)
        assert site.post("/bulk/cancel", {**form, "more": "1"}, AS_JSON).status == 200
        conn.execute("update stepwell.bulk set state = 'stopped', finished_at = now() where state = 'running'")
        conn.execute("delete from stepwell.job where queue = %s", (queue,))


@pytest.mark.parametrize(
    "form",
    [
        {"count": "x"},
        {"count": "1", "state": "succeeded"},
        {"count": "1", "as_of": "soon"},
        {"count": "1", "as_of": "2026-01-01"},
        {"count": "1", "worker": "x"},
        {"count": "1", "metadata": "password=x"},
        {"count": "-1"},
    ],
)
def test_what_is_wrong_is_refused(site: Site, form: dict[str, str]) -> None:
    assert site.post("/bulk/retry", form).status == 400
    assert site.post("/bulk/move", form).status == 400


def test_an_operation_is_stopped(site: Site, shop: App, queue: str, new: New) -> None:
    job = new()
    bulk = site.post("/bulk/cancel", {"queue": queue, "count": "1"}, AS_JSON).json["bulk"]
    assert "<h2>No worker is processing it</h2><p>No worker is alive." in site.get(f"/bulk/{bulk}").text
    answer = site.post(f"/bulk/{bulk}/stop", {"back": "/jobs?state=scheduled"})
    assert (answer.headers["location"], answer.said[:14]) == ("/jobs?state=scheduled", "It is stopped.")
    work_off(shop, bulk)
    assert state_of(job) == "scheduled"
    assert site.post(f"/bulk/{bulk}/stop", {}, AS_JSON).status == 409
    assert site.post(f"/bulk/{uuid4()}/stop").status == 404
    assert site.get(f"/bulk/{uuid4()}").status == 404
    assert bulk in site.get("/bulk").text
    assert any(each["id"] == bulk for each in site.json("/bulk")["bulks"])


def test_each_act_needs_its_right_and_so_does_its_stop(shop: App, queue: str, new: New) -> None:
    new()
    with served(Dashboard(shop, rights=OPERATOR)) as operator, served(Dashboard(shop, rights=["view"])) as viewer:
        assert operator.post("/bulk/delete", {"queue": queue, "count": "0"}).status == 403
        assert operator.get("/jobs/bulk?act=delete").status == 403
        assert 'id="all-delete"' not in operator.get("/jobs").text
        bulk = operator.post("/bulk/move", {"queue": queue, "count": "1", "to": "x"}, AS_JSON).json["bulk"]
        assert viewer.post("/bulk/retry", {"count": "0"}).status == 403
        assert viewer.post(f"/bulk/{bulk}/stop").status == 403
        assert viewer.get(f"/bulk/{bulk}").status == 200
        assert "all-" not in viewer.get("/jobs").text.partition('class="matching"')[2].partition("Export")[0]
        assert operator.post(f"/bulk/{bulk}/stop", {}, {}).status == 403, "from another site"
        assert operator.post(f"/bulk/{bulk}/stop").status == 303


def test_a_job_is_moved_and_deleted_by_itself_and_in_a_selection(site: Site, queue: str, new: New) -> None:
    job, others = new(), [new() for _ in range(2)]
    page = site.get(f"/jobs/{job.id}").text
    assert 'id="move"' in page
    said = site.post(f"/jobs/{job.id}/move", {"to": ODD, "priority": "-3", "run_at": "2099-01-01T00:00"}).said
    assert said == "The job is moved"
    info = job.info()
    assert info is not None
    assert info.run_at is not None
    assert (info.queue, info.priority, info.run_at.year) == (ODD, -3, 2099)
    for wrong in ({}, {"priority": "high"}, {"run_at": "soon"}, {"to": "x" * 201}):
        assert site.post(f"/jobs/{job.id}/move", wrong).status == 400, wrong
    ids = [str(other.id) for other in others]
    assert site.post("/jobs/move", {"id": ids, "to": "elsewhere"}).said == "2 jobs are moved"
    assert site.post(f"/jobs/{job.id}/delete").said == "The job is scheduled: cancel it first"
    for each in (job, *others):
        each.cancel()
    answer = site.post(f"/jobs/{job.id}/delete", {"back": f"/jobs/{job.id}"})
    assert (answer.headers["location"], answer.said) == ("/jobs", "The job is deleted")
    assert site.post("/jobs/delete", {"id": ids, "back": "/jobs?a=b"}).said == "2 jobs are deleted"
    assert [state_of(each) for each in (job, *others)] == [None] * 3


def test_an_export_has_every_job_and_every_digit(site: Site, shop: App, queue: str) -> None:
    greet = shop.tasks["greet"].using(queue=queue, delay="1h", metadata={"password": "hunter2", "n": BIG})
    greet.enqueue_many([{"name": "Ada", "times": BIG}] * 450)  # more than two pages
    exported = site.get("/jobs/export?" + _query(queue=queue, format="json"))
    assert exported.headers["content-disposition"] == 'attachment; filename="jobs.json"'
    assert exported.headers["cache-control"] == "no-store"
    found = exported.json
    assert (len(found["jobs"]), len({job["id"] for job in found["jobs"]}), found["complete"]) == (450, 450, True)
    assert found["jobs"][0]["args"] == {"name": "Ada", "times": BIG}
    assert found["jobs"][0]["metadata"] == {"password": "[redacted]", "n": BIG}
    rows = list(csv.DictReader(io.StringIO(site.get("/jobs/export?" + _query(queue=queue, format="csv")).text)))
    assert len(rows) == 450
    assert rows[0]["args"] == f'{{"name": "Ada", "times": {BIG}}}'
    assert "hunter2" not in rows[0]["metadata"]


def test_an_export_has_no_formulas_and_ends_at_its_limit(
    site: Site, shop: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = f'=HYPERLINK("x"){uuid4().hex}'
    shop.tasks["greet"].using(queue=evil, delay="1h").enqueue_many([{"name": name} for name in "abc"])
    monkeypatch.setattr("stepwell.web.pages.export.MOST", 2)
    [header, first, _, last] = csv.reader(
        io.StringIO(site.get("/jobs/export?" + _query(queue=evil, format="csv")).text)
    )
    assert first[header.index("queue")] == "'" + evil
    assert (len(last), last[0][:13], set(last[1:])) == (len(header), "NOT COMPLETE:", {""})
    found = site.json("/jobs/export?" + _query(queue=evil))
    assert (len(found["jobs"]), found["complete"]) == (2, False)
    assert site.json("/jobs/export?queue=nothing") == {"jobs": [], "complete": True}
    assert site.get("/jobs/export?format=xml").status == 400
    assert site.get("/jobs/export?arg=password=x").status == 400


def test_filters_are_completed(site: Site, shop: App) -> None:
    shop.tasks["greet"].using(delay="1h", metadata={"cust<omer": 1}).enqueue("x")
    page = site.get("/jobs?task=greet").text
    assert '<option value="times=">' in page
    assert '<option value="cust&lt;omer=">' in page


def test_a_clone_has_the_options_of_the_job_but_nothing_hidden(site: Site, queue: str, new: New) -> None:
    job = new(priority=7, metadata={"password": "hunter2", "tier": BIG})
    page = site.get(f"/tasks/enqueue?task=greet&like={job.id}").text
    assert 'name="priority" value="7"' in page
    assert f'name="queue" value="{html.escape(queue)}"' in page
    assert str(BIG) in page
    assert "hunter2" not in page


def test_a_filter_from_elsewhere_shows_nothing_that_is_hidden(site: Site, shop: App) -> None:
    which = {"argument": "card.password", "value": "hunter2", "metadata": {"password": "hunter2"}}
    [bulk] = shop.database.fetch(queries.bulk.start("retry", which, {}, None, HOSTILE))
    page = site.get(f"/bulk/{bulk}").text
    assert "hunter2" not in page
    assert HOSTILE not in page
    assert "hunter2" not in site.get("/bulk").text + site.get("/jobs").text
    assert "hunter2" not in str(site.json("/bulk"))


def test_a_bulk_operation_leaves_the_queue_alone_whose_name_differs_by_a_space(site: Site, shop: App) -> None:
    name = uuid4().hex
    greet = shop.tasks["greet"]
    kept = [greet.using(queue=queue, delay="1h").enqueue("x") for queue in (name, f"{name} ")]
    spaced = greet.using(queue=f" {name}", delay="1h").enqueue("x")
    page = site.get("/queues?" + _query(name=f" {name}")).text
    [link] = set(re.findall(r'href="(/jobs\?[^"]*state=scheduled[^"]*)"', page))
    listed = site.get(html.unescape(link)).text
    assert re.findall(r'id="job-([^"]*)"', listed) == [str(spaced.id)]
    [preview] = re.findall(r'id="all-cancel" href="([^"]*)"', listed)
    fields = fields_of(site.get(html.unescape(preview)).text)
    answer = site.post("/bulk/cancel", {**fields, "count": "1"})
    work_off(shop, answer.headers["location"].removeprefix("/bulk/").partition("?")[0])
    assert (state_of(spaced), *map(state_of, kept)) == ("cancelled", "scheduled", "scheduled")


def test_a_filter_of_nothing_but_spaces_is_no_missing_filter(site: Site, new: New) -> None:
    new()
    for name in ("queue", "task", "owner", "error"):
        assert site.json("/jobs?" + _query(**{name: "   "}))["jobs"] == [], name
    for name in ("state", "since", "worker", "failure", "metadata", "arg"):
        assert site.get("/jobs?" + _query(**{name: "   "})).status == 400, name


def test_the_values_of_arguments_and_metadata_are_compared_with_their_spaces(site: Site, queue: str, new: New) -> None:
    spaced = new(" ada", metadata={"customer": " ada"})
    new("ada", metadata={"customer": "ada"})
    for filters in ({"arg": "name= ada"}, {"metadata": "customer= ada"}):
        found = site.json("/jobs?" + _query(queue=queue, **filters))["jobs"]
        assert [job["id"] for job in found] == [str(spaced.id)]
    page = site.get("/jobs?" + _query(queue=queue, arg="name=ada ")).text
    assert "The filter arg has a space at an end" in page
    assert "has a space" not in site.get("/jobs?" + _query(queue=queue, arg="name=eve")).text


def test_a_job_is_moved_to_and_enqueued_into_the_queue_of_exactly_that_name(
    site: Site, shop: App, queue: str, new: New
) -> None:
    moved, there = new(), f" {queue} "
    assert site.post(f"/jobs/{moved.id}/move", {"to": there}).status == 303
    site.post("/tasks/enqueue", {"task": "greet", "arg.name": "x", "queue": there})
    assert {job["queue"] for job in site.json("/jobs?" + _query(queue=there))["jobs"]} == {there}
    assert shop.count_jobs(queue=there) == 2
