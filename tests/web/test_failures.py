"""The pages and acts about failures, and the audit of acts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import psycopg
import pytest
from web.site import HOSTILE, OURS, Site, served

from stepwell import App, Fail, JobHandle
from stepwell.postgres import queries
from stepwell.testing import drain
from stepwell.web import VIEWER, Dashboard, User

JSON = {**OURS, "Accept": "application/json"}


@pytest.fixture(scope="module")
def failing(module_dsn: str) -> Iterator[App]:
    app = App(module_dsn, name="failing")

    @app.task
    async def mend(text: str) -> None:
        raise Fail(text)

    @app.task
    async def price(order: int) -> None:
        raise Fail(f"order {order}")

    @app.task
    async def refund(order: int) -> None:
        raise Fail(f"order {order}")

    @app.task
    async def reship(order: int) -> None:
        raise Fail(f"order {order}")

    @app.task
    async def rebill(order: int) -> None:
        raise Fail(f"order {order}")

    yield app
    app.close()


@pytest.fixture(scope="module")
def site(failing: App) -> Iterator[Site]:
    def who(request: Any) -> User:
        name = request.headers.get("x-name", "ada")
        return User(name, VIEWER) if name == "eve" else User(name)

    with served(Dashboard(failing, auth=who)) as found:
        yield found


@pytest.fixture(scope="module")
def bad(failing: App) -> list[JobHandle[Any]]:
    jobs = [failing.tasks["mend"].enqueue(HOSTILE), *(failing.tasks["price"].enqueue(n) for n in range(3))]
    drain(failing)
    return jobs


def group(site: Site, task: str, state: str = "all") -> dict[str, Any]:
    [found] = site.json(f"/failures?state={state}&task={task}")["groups"]
    return found


def acts(site: Site, query: str = "") -> list[tuple[str, str, str, int]]:
    return [(a["who"], a["act"], a["target"], a["count"]) for a in site.json(f"/audit{query}")["acts"]]


def test_failures_are_listed_by_state_and_order(site: Site, bad: list[JobHandle[Any]]) -> None:
    found = {g["task"]: g for g in site.json("/failures?state=all")["groups"]}
    assert (found["mend"]["count"], found["mend"]["frame"]) == (1, f"{__name__}:failing.<locals>.mend")
    assert (found["price"]["count"], len(found["price"]["hours"])) == (3, 24)
    page = site.json("/failures?state=all&limit=1&sort=count")
    rest = site.json(f"/failures?state=all&limit=50&sort=count&after={page['next']}")
    assert len(page["groups"]) == 1
    assert rest["next"] is None
    assert {g["task"] for g in (*page["groups"], *rest["groups"])} == set(found)
    assert sum(site.json("/failures")["states"].values()) == len(found)
    for query in ("state=closed", "sort=size", "after=x", "limit=0", "limit=1e9"):
        assert site.get(f"/failures?{query}").status == 400, query


def test_hostile_messages_are_escaped(site: Site, bad: list[JobHandle[Any]]) -> None:
    for path in ("/failures", f"/failures/{group(site, 'mend')['id']}"):
        text = site.get(path).text
        assert HOSTILE not in text
        assert "&lt;script&gt;" in text


def test_a_failure_shows_an_example_and_leads_to_its_jobs_and_back(site: Site, bad: list[JobHandle[Any]]) -> None:
    found = group(site, "price")
    one = site.json(f"/failures/{found['id']}")
    assert [attempt["job_id"] for attempt in one["attempts"]] == [str(job.id) for job in reversed(bad[1:])]
    assert "raise Fail(f" in one["attempts"][0]["traceback"]
    assert f"/jobs?failure={found['id']}" in site.get(f"/failures/{found['id']}").text
    listed = site.json(f"/jobs?failure={found['id']}&state=failed")["jobs"]
    assert {job["id"] for job in listed} == {str(job.id) for job in bad[1:]}
    assert f'name="failure" value="{found["id"]}"' in site.get(f"/jobs?failure={found['id']}").text
    assert f"/failures/{found['id']}" in site.get(f"/jobs/{bad[1].id}").text
    assert site.get(f"/failures/{uuid4()}").status == 404
    assert site.get("/jobs?failure=x").status == 400


def test_a_failure_is_resolved_ignored_and_reopened(site: Site, bad: list[JobHandle[Any]]) -> None:
    found = group(site, "mend")
    answer = site.post("/failures/resolve", {"id": found["id"], "back": "/failures?sort=count"})
    assert (answer.status, answer.headers["location"], answer.said) == (
        303, "/failures?sort=count", "The failure is resolved.",
    )  # fmt: skip
    assert group(site, "mend", "resolved")["state"] == "resolved"
    assert site.post("/failures/resolve", {"id": found["id"]}, JSON).status == 409
    assert site.post("/failures/ignore", {"id": found["id"]}, JSON).json["changed"] == [found["id"]]
    assert site.post("/failures/reopen", {"id": found["id"]}, JSON).json["ok"]
    for form in ({}, {"id": "x"}, {"id": [str(uuid4()) for _ in range(501)]}):
        assert site.post("/failures/resolve", form).status == 400
    assert acts(site)[:3] == [
        ("ada", "reopen", f"failure {found['id']}", 1),
        ("ada", "ignore", f"failure {found['id']}", 1),
        ("ada", "resolve", f"failure {found['id']}", 0),
    ]


def test_the_failed_jobs_of_a_failure_are_retried_as_one_act(site: Site, failing: App) -> None:
    failing.tasks["refund"].enqueue_many([{"order": n} for n in range(3)])
    drain(failing)
    found = group(site, "refund")
    site.post("/failures/resolve", {"id": found["id"]})
    failing.tasks["reship"].enqueue(1)  # fails, too, but for another cause
    drain(failing)
    assert f"failure={found['id']}" in site.get(f"/failures/{found['id']}").text
    which = {"state": "failed", "failure": found["id"]}
    preview = site.json("/jobs/bulk?" + urlencode({"act": "retry", **which}))
    assert preview["count"] == 3
    started = site.post("/bulk/retry", {**which, "count": 3, "as_of": preview["as_of"]}, JSON)
    failing.database.fetch(queries.bulk.chunk(started.json["bulk"]))
    assert acts(site)[0] == ("ada", "retry", f"jobs with state=failed failure={found['id']}", 3)
    drain(failing)
    again = group(site, "refund")
    assert (again["state"], again["reopened"], again["count"]) == ("open", 1, 6)
    assert "again" in site.get("/failures").text


def test_who_may_only_look_sees_no_buttons_and_may_not_triage(site: Site, bad: list[JobHandle[Any]]) -> None:
    found = group(site, "mend")
    assert "/failures/resolve" in site.get(f"/failures/{found['id']}").text
    eve = Site(site.port, headers={"X-Name": "eve"})
    assert 'action="/failures/resolve"' not in eve.get(f"/failures/{found['id']}").text
    assert eve.post("/failures/resolve", {"id": found["id"]}).status == 403


def test_every_kind_of_act_is_recorded_with_the_name_of_its_user(site: Site, failing: App, module_dsn: str) -> None:
    job = failing.tasks["mend"].using(delay="1h").enqueue("x")
    grace = Site(site.port, headers={"X-Name": "grace"})
    grace.post(f"/jobs/{job.id}/args", {"args": '{"text": "y"}'})
    grace.post("/queues/pause", {"queue": "a/b %"})
    grace.post("/queues/resume", {"queue": "a/b %"})
    grace.post(f"/jobs/{job.id}/cancel")
    made = grace.post("/tasks/enqueue", {"task": "mend", "arg.text": "z", "delay": "1h"}, JSON).json["job"]
    assert acts(site, "?who=grace") == [
        ("grace", "enqueue", f"job {made} of task mend", 1),
        ("grace", "cancel", f"job {job.id}", 1),
        ("grace", "resume", "queue a/b %", 1),
        ("grace", "pause", "queue a/b %", 1),
        ("grace", "edit", f"job {job.id}", 1),
    ]
    assert acts(site, "?who=grace&act=pause") == [("grace", "pause", "queue a/b %", 1)]
    # Calls of programs, and what a user has looked at, are not.
    failing.job(made).cancel()
    grace.get("/jobs")
    assert len(acts(site, "?who=grace")) == 5
    with psycopg.connect(module_dsn) as conn:
        row = conn.execute(
            "select distinct via, role = session_user from stepwell.audit where who = 'grace'"
        ).fetchall()
    assert row == [("web", True)]


def test_a_refused_act_is_not_recorded(site: Site) -> None:
    mallory = Site(site.port, headers={"X-Name": "mallory"})
    assert mallory.post("/schedules/pause", {"owner": "failing", "name": "none"}).status == 404
    assert mallory.post("/queues/pause", {"queue": "mail"}, {"Sec-Fetch-Site": "cross-site"}).status == 403
    assert mallory.post("/tasks/enqueue", {"task": "price", "arg.order": "x"}, JSON).status != 200
    assert [act for _, act, _, count in acts(site, "?who=mallory") if count] == []


def test_the_audit_is_paged_and_hostile_names_are_escaped(site: Site) -> None:
    hostile = Site(site.port, headers={"X-Name": HOSTILE})
    for n in range(3):
        hostile.post("/queues/pause", {"queue": f"{HOSTILE}{n}"})
    text = site.get("/audit").text
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text
    first = site.json("/audit?limit=2")
    assert [act["target"][-1] for act in first["acts"]] == ["2", "1"]
    assert site.json(f"/audit?limit=1&before={first['next']}")["acts"][0]["target"] == f"queue {HOSTILE}0"
    assert site.json("/audit?who=nobody") | {"looked": 0} == {"acts": [], "looked": 0, "next": None}
    assert 'id="first"' not in site.get("/audit?limit=1").text
    assert 'href="/audit?who=ada" id="first"' in site.get(f"/audit?who=ada&limit=1&before={first['next']}").text
    for query in ("before=x", "before=-1", f"before={2**63}", "before=" + "9" * 5000, "limit=0", "who=%00"):
        assert site.get(f"/audit?{query}").status == 400, query


def test_a_filter_in_the_audit_shows_no_values_that_may_be_secret(site: Site, failing: App) -> None:
    which = {"state": "failed", "arg": "card=4111", "metadata": '{"token": "s3cret"}'}
    preview = site.json("/jobs/bulk?" + urlencode({"act": "delete", **which}))
    started = site.post("/bulk/delete", {**which, "count": 0, "as_of": preview["as_of"]}, JSON)
    assert started.status == 200, started.text
    assert acts(site)[0] == ("ada", "delete", "jobs with state=failed metadata=... argument=card value=...", 0)
    assert site.post(f"/bulk/{started.json['bulk']}/stop", {}, JSON).json["ok"]
    assert acts(site)[0] == ("ada", "stop", f"bulk operation {started.json['bulk']}", 1)


def test_an_export_has_only_the_jobs_of_the_chosen_failure(site: Site, failing: App) -> None:
    failing.tasks["reship"].enqueue(2)
    failing.tasks["rebill"].enqueue(2)
    drain(failing)
    found = site.json("/jobs/export?format=json&failure=" + group(site, "reship")["id"])
    assert {job["task"] for job in found["jobs"]} == {"reship"}


def test_deleting_and_moving_jobs_are_recorded(site: Site, failing: App) -> None:
    failed = failing.tasks["reship"].enqueue(3)
    drain(failing)
    waits = failing.tasks["reship"].using(delay="1h").enqueue(4)
    assert site.post(f"/jobs/{waits.id}/move", {"to": "later"}, JSON).json["ok"]
    assert site.post(f"/jobs/{failed.id}/delete", {}, JSON).json["ok"]
    assert acts(site)[:2] == [("ada", "delete", f"job {failed.id}", 1), ("ada", "move", f"job {waits.id}", 1)]
    waits.cancel()


def test_a_task_and_a_person_are_found_by_exactly_their_names(site: Site, bad: list[JobHandle[Any]]) -> None:
    assert bad
    assert [len(site.json(f"/failures?state=all&task={task}")["groups"]) for task in ("price", "+price", "+")] == [
        1,
        0,
        0,
    ]
    site.post("/queues/pause", {"queue": "spaced"})
    assert [bool(acts(site, f"?who={who}")) for who in ("ada", "+ada", "+")] == [True, False, False]
