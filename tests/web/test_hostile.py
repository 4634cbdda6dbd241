"""What an adversary sends or stores: no page fails, and nothing hidden is found."""

from __future__ import annotations

import csv
import html
import io
import json
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

import psycopg
import pytest
from web.site import OURS, Answer, Site

from stepwell import App
from stepwell.web.sendable import to_json
from stepwell.web.visit import pack

AS_JSON = {**OURS, "Accept": "application/json", "Content-Type": "application/json"}


def send(site: Site, path: str, fields: Any, **headers: str) -> Answer:
    """Send an act as JSON. Lone surrogates are sent as escapes."""
    return site.ask("POST", path, json.dumps(fields), {**AS_JSON, **headers})


@pytest.mark.parametrize("space", [" ", "\t", "\N{NO-BREAK SPACE}", "\N{IDEOGRAPHIC SPACE}", "\x1f"])
@pytest.mark.parametrize("path", ["/jobs?", "/jobs/export?", "/jobs/bulk?act=cancel&"])
def test_a_space_in_its_name_does_not_find_a_hidden_field(site: Site, path: str, space: str) -> None:
    for name in (
        f"password{space}",
        f"user.Password{space}",
        f"{space}password{space}.x",
        f"user{space}.{space}PASSWORD",
    ):
        answer = site.get(f"{path}arg=" + quote(f"{name}=hunter2"))
        assert (answer.status, "hidden here" in answer.text) == (400, True), name
    assert site.get(f"{path}arg=" + quote(f"name{space}=Ada")).status == 200


def test_a_name_that_is_not_known_is_refused_and_changes_nothing(site: Site, shop: App) -> None:
    job = shop.tasks["greet"].using(queue="kept", delay="1h").enqueue("Ada")
    for path, name in (
        ("/jobs?quue=kept", "quue"),
        ("/jobs/bulk?act=cancel&quue=kept", "quue"),
        ("/jobs/export?format=csv&limit=10", "limit"),
        ("/jobs?queue=kept&queue=other", "queue"),
        ("/audit?how=ada", "how"),
        (f"/jobs/{job.id}?levle=info", "levle"),
    ):
        answer = site.get(path)
        assert answer.status == 400, path
        assert f"'{name}' is" in html.unescape(answer.text)
    for path, fields, name in (
        ("/bulk/cancel", {"quue": "kept", "count": 100, "more": True}, "quue"),
        (f"/jobs/{job.id}/cancel", {"reson": "x"}, "reson"),
        (f"/jobs/{job.id}/cancel?reason=x", {}, "reason"),
        ("/tasks/enqueue", {"task": "greet", "arg.name": "Ada", "arg.tims": 5, "queue": "kept"}, "tims"),
        ("/tasks/enqueue", {"task": "greet", "arg.name": "Ada", "dealy": "1h", "queue": "kept"}, "dealy"),
    ):
        answer = send(site, path, fields)
        assert answer.status == 400, path
        assert f"'{name}'" in answer.json["error"]
    [found] = shop.jobs(queue="kept")
    assert (found.id, found.state) == (job.id, "scheduled")


def test_false_and_null_in_json_are_not_given(site: Site, shop: App) -> None:
    greet = shop.tasks["greet"].using(queue="flags", delay="1h")
    jobs = [greet.enqueue("Ada") for _ in range(3)]
    which = {"queue": "flags", "state": None, "task": None}
    for more in (False, None, 0, ""):
        assert send(site, "/bulk/cancel", {**which, "count": 1, "more": more}).status == 409, more
    assert send(site, "/bulk/cancel", {**which, "count": 1, "more": "no"}).status == 400
    shop.cancel_jobs(queue="flags")
    for given, stored in ((False, {}), (None, {}), (True, {"from_start": True})):
        answer = send(site, "/bulk/retry", {**which, "state": "cancelled", "count": 3, "from_start": given})
        assert answer.status == 200, answer.text
        assert site.json(f"/bulk/{answer.json['bulk']}")["options"] == stored
        send(site, f"/bulk/{answer.json['bulk']}/stop", {})
    # A job cannot start over and go on at a step. With false, it does not start over.
    assert send(site, f"/jobs/{jobs[0].id}/retry", {"from_start": True, "step": "x"}).status == 400
    assert "choose one" not in send(site, f"/jobs/{jobs[0].id}/retry", {"from_start": False, "step": "x"}).text
    fields = {"task": "greet", "arg.name": "Ada", "arg.times": None, "queue": None, "metadata": None, "delay": "1h"}
    made = send(site, "/tasks/enqueue", fields).json["job"]
    assert (site.json(f"/jobs/{made}")["queue"], site.json(f"/jobs/{made}")["args"]) == ("default", {"name": "Ada"})


def test_stored_values_that_utf8_and_json_cannot_express_are_shown(site: Site, shop: App, module_dsn: str) -> None:
    args = '{"name": "a\\ud800b", "times": 1e400, "deep": [{"n": -1E999, "\\udfff": 1.5}]}'
    with psycopg.connect(module_dsn) as connection:
        found = connection.execute(
            "select stepwell.enqueue('greet', %s::json, queue => 'odd', delay => '1h')", (args,)
        ).fetchone()
    assert found is not None
    shown = {"name": "a\ufffdb", "times": "1e400", "deep": [{"n": "-1E999", "\ufffd": 1.5}]}
    [job] = site.json("/jobs?queue=odd")["jobs"]
    assert (job["args"], site.json(f"/jobs/{job['id']}")["args"]) == (shown, shown)
    for path in ("/jobs?queue=odd", f"/jobs/{job['id']}"):
        page = site.get(path)
        assert (page.status, "a\ufffdb" in page.text) == (200, True), path
    # A clone must not change it: the form has it as JSON.
    clone = site.get(f"/tasks/enqueue?task=greet&like={job['id']}")
    assert (clone.status, "&#34;a\\ud800b&#34;" in clone.text) == (200, True)
    assert site.get("/jobs/bulk?act=cancel&queue=odd").status == 200
    assert site.json("/jobs/export?format=json&queue=odd")["jobs"][0]["args"] == shown
    [row] = csv.DictReader(io.StringIO(site.get("/jobs/export?format=csv&queue=odd").text))
    assert json.loads(row["args"], parse_constant=pytest.fail) == shown
    shop.cancel_jobs(queue="odd")
    assert site.post(f"/jobs/{job['id']}/delete").said == "The job is deleted"


def test_json_has_no_infinity_wherever_it_comes_from() -> None:
    written = to_json({"a": [float("inf"), (float("nan"), 2**70)], "b": "\udc00"})
    assert json.loads(written, parse_constant=pytest.fail) == {"a": ["inf", ["nan", 2**70]], "b": "\ufffd"}


@pytest.mark.parametrize("field", ["queue", "priority", "delay", "metadata", "arg.name", "arg.times"])
@pytest.mark.parametrize("value", [[], ["a", "b"], "\ud800", "\0", {"a": "\0"}, {"a": "\ud800"}, {"a": [["x"]]}])
def test_no_value_of_a_new_job_takes_the_page_down(site: Site, shop: App, field: str, value: Any) -> None:
    fields = {"task": "greet", "arg.name": "Ada", "delay": "1h", field: value}
    fits = (field == "metadata" and value == {"a": [["x"]]}) or (
        field in ("arg.name", "queue") and isinstance(value, dict)
    )
    for accept in ("application/json", "text/html"):
        answer = send(site, "/tasks/enqueue", fields, Accept=accept)
        assert answer.status == 400 or (fits and answer.status in (200, 303)), answer.text
        if answer.status == 400:
            assert field.removeprefix("arg.") in answer.text
    if field.startswith("arg.") and not isinstance(value, dict):
        job = shop.tasks["greet"].using(delay="1h").enqueue("Ada")
        assert send(site, f"/jobs/{job.id}/args", {field: value}).status == 400


@pytest.mark.parametrize("text", ["\ud800", "a\0b"])
def test_text_that_postgres_cannot_store_is_refused_by_name(site: Site, shop: App, text: str) -> None:
    job = shop.tasks["greet"].using(delay="1h").enqueue("Ada")
    for path, field in ((f"/jobs/{job.id}/retry", "step"), ("/bulk/retry", "back"), ("/queues/pause", "queue")):
        answer = send(site, path, {"count": 0, field: text})
        assert (answer.status, field in answer.text) == (400, True), path
    for path in ("/queues?name=", "/queues?after=", "/limits?after=", "/schedules?name=", "/schedules?owner="):
        assert site.get(path + "a%00b").status == 400, path


@pytest.mark.parametrize(
    "metadata", ['{"a": "\\u0000"}', '{"a": "\\ud800"}', '{"\\ud800": 1}', '{"a": NaN}', "a=1e400"]
)
def test_metadata_that_no_job_has_is_refused(site: Site, metadata: str) -> None:
    for path in ("/jobs?", "/jobs/export?", "/jobs/bulk?act=retry&"):
        answer = site.get(path + "metadata=" + quote(metadata))
        assert (answer.status, "metadata" in answer.text) == (400, True), path
    assert send(site, "/bulk/retry", {"metadata": metadata, "count": 0}).status == 400
    assert site.get("/jobs?metadata=" + quote('{"a": "\\\\u0000"}')).status == 200, "a backslash and u0000"


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_a_time_that_no_zone_has_is_refused(site: Site, at: str) -> None:
    for name in ("since", "until"):
        answer = site.get(f"/jobs?{name}=" + quote(at))
        assert (answer.status, name in answer.text) == (400, True)
    assert send(site, "/bulk/retry", {"count": 0, "as_of": at}).status == 400
    assert send(site, "/bulk/move", {"count": 0, "run_at": at}).status == 400
    # Python knows this zone, and Postgres does not.
    assert site.get("/jobs?since=" + quote("2026-01-31T12:00:00-23:59")).status == 200


def test_headers_that_are_no_url_are_refused(site: Site) -> None:
    for path in ("/", "/jobs", "/live", "/static/x"):
        assert site.get(path, Host="[").status == 400, path
    for origin in ("http://[", "http://]", "["):
        assert send(site, "/queues/pause", {"queue": "x"}, Origin=origin).status == 403, origin


def test_every_cell_of_a_csv_file_is_quoted(site: Site, shop: App) -> None:
    shop.tasks["greet"].using(queue="x;=1+1", delay="1h").enqueue("Ada")
    lines = site.get("/jobs/export?format=csv&queue=" + quote("x;=1+1")).text.splitlines()
    assert '"x;=1+1"' in lines[1]
    assert all(line.startswith('"') and line.endswith('"') for line in lines)


def test_what_an_act_says_fits_in_a_cookie(site: Site) -> None:
    name = "\N{GRINNING FACE}" * 190
    answer = site.post("/queues/pause", {"queue": name})
    assert answer.said == f"Queue {name} is paused. Running jobs go on."
    text = "%\N{GRINNING FACE}" * 500
    for most in range(3700, 3720):
        packed = pack(True, text, most)
        assert len(packed) <= most
        assert unquote(packed, errors="strict").startswith("1%\N{GRINNING FACE}")
        assert unquote(packed).endswith("…")
    job = uuid4()
    said = site.post(f"/jobs/{job}/signal", {"name": "x", "value": '"' + "\N{GRINNING FACE}" * 5000 + '"'})
    assert len(said.headers.get("set-cookie", "")) < 4000


def test_an_answer_quotes_no_more_than_the_beginning_of_a_value(site: Site) -> None:
    long = "x" * 1_000_000
    job = str(uuid4())
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/bulk/cancel", {"queue": long, "count": 1}),
        ("/bulk/cancel", {"count": long}),
        ("/bulk/cancel", {"count": 1, "as_of": long}),
        ("/bulk/cancel", {"count": 1, "arg": f"name={long}", "metadata": long}),
        ("/bulk/move", {"to": long, "count": 1}),
        ("/queues/pause", {"queue": long}),
        ("/schedules/backfill", {"owner": "shop", "name": long, "since": "1h"}),
        ("/views/delete", {"name": long}),
        ("/views/save", {"name": long, "state": "ready"}),
        ("/tasks/enqueue", {"task": long}),
        ("/tasks/enqueue", {"task": "greet", "arg.name": "x", "delay": long}),
        ("/tasks/enqueue", {"task": "greet", "arg.name": "x", "arg.tone": long}),
        ("/tasks/enqueue", {"task": "greet", "arg.name": "x", "arg.times": long}),
        (f"/jobs/{job}/signal", {"name": long, "value": "1"}),
        (f"/jobs/{job}/signal", {"name": "x", "value": long}),
        (f"/jobs/{job}/fork", {"step": long}),
        (f"/jobs/{job}/retry", {"step": long}),
        (f"/jobs/{job}/retry", {long: "1"}),
    ]
    for path, fields in asked:
        answer = send(site, path, fields)
        assert 400 <= answer.status < 500, (path, answer.text[:200])
        assert len(answer.text) < 5000, (path, [name[:20] for name in fields])
