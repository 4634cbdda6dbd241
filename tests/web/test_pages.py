"""Every page over HTTP, as HTML and as JSON, with hostile text and odd names in it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import quote, urlencode
from uuid import uuid4

import psycopg
import pytest
from web.site import HOSTILE, PAGES, Site, served

from stepwell import App, JobHandle
from stepwell.testing import drain
from stepwell.web import Dashboard

ODD = "a/b.c%d ?&#<i>é"
BIG = 9007199254740993

Jobs = dict[str, JobHandle[Any]]


@pytest.fixture(scope="module")
def jobs(shop: App) -> Jobs:
    """Jobs in every state, most with something hostile in them."""
    greet, approve, parent = (shop.tasks[name] for name in ("greet", "approve", "parent"))
    good = greet.using(metadata={"customer": HOSTILE, "tier": BIG}).enqueue("Ada", times=BIG)
    bad, waits, family = greet.enqueue(HOSTILE), approve.enqueue(7), parent.enqueue(8)
    drain(shop)
    late = greet.using(delay="1h", queue=ODD).enqueue("late")
    gone = greet.using(delay="1h").enqueue("gone")
    gone.cancel(HOSTILE)
    ready = greet.using(queue=ODD).enqueue("ready")
    shop.pause(ODD)
    secret = greet.using(delay="1h", metadata={"password": "hunter2"}).enqueue("secret")
    shop.schedule_task(greet, "30 2 * * mon-fri", name=ODD, args={"name": HOSTILE}, tz="Europe/Paris")
    return {
        "good": good,
        "bad": bad,
        "waits": waits,
        "family": family,
        "late": late,
        "gone": gone,
        "ready": ready,
        "secret": secret,
    }


def is_safe(page: str) -> bool:
    return HOSTILE not in page and "<i>é" not in page


@pytest.mark.parametrize("path", PAGES)
def test_a_page_shows_hostile_text_as_text(site: Site, jobs: Jobs, path: str) -> None:
    answer = site.get(path)
    assert answer.status == 200
    assert is_safe(answer.text)
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert " style=" not in answer.text
    assert " onclick" not in answer.text
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_json_for_programs(site: Site, jobs: Jobs, path: str) -> None:
    assert isinstance(site.json(path), dict)


def test_each_job_has_a_page_whatever_its_state(site: Site, jobs: Jobs) -> None:
    for name, job in jobs.items():
        answer = site.get(f"/jobs/{job.id}")
        assert answer.status == 200, (name, answer.text)
        assert is_safe(answer.text)
        assert "hunter2" not in answer.text
    assert html.escape(HOSTILE) in site.get(f"/jobs/{jobs['bad'].id}").text.replace("&#34;", '"').replace(
        "&#39;", "&#x27;"
    )


def test_integers_above_2_to_the_53_are_exact(site: Site, jobs: Jobs) -> None:
    found = site.json(f"/jobs/{jobs['good'].id}")
    assert (found["args"]["times"], found["metadata"]["tier"], found["result"]) == (BIG, BIG, "hello Ada")
    assert str(BIG) in site.get(f"/jobs/{jobs['good'].id}").text
    [job] = site.json("/jobs?" + urlencode({"arg": f"times={BIG}"}))["jobs"]
    assert job["id"] == str(jobs["good"].id)


def test_a_job_says_why_it_waits_and_shows_its_steps_and_children(site: Site, jobs: Jobs) -> None:
    page = site.get(f"/jobs/{jobs['waits'].id}").text
    assert "it waits for the signal" in page
    assert 'value="approved"' in page
    assert 'id="step-1"' in page
    assert site.json(f"/jobs/{jobs['waits'].id}")["why"]["cause"] == "signal"
    family = jobs["family"].id
    [child] = site.json(f"/jobs/{family}/children")["children"]
    assert (child["task"], child["state"]) == ("approve", "waiting")
    assert f"child-{child['id']}" in site.get(f"/jobs/{family}").text
    assert site.json(f"/jobs/{family}/steps?offset=0")["steps"][0]["kind"] == "child"
    assert site.get(f"/jobs/{family}/steps?offset=x").status == 400
    assert (site.get("/jobs?offset=0").status, site.get("/jobs?offset=-1").status) == (200, 400)


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"state": "failed"}, {"bad"}),
        ({"state": "cancelled"}, {"gone"}),
        ({"state": "ready"}, {"ready"}),
        ({"state": "scheduled", "queue": ODD}, {"late"}),
        ({"queue": ODD}, {"late", "ready"}),
        ({"error": "SCRIPT"}, {"bad", "gone"}),
        ({"metadata": f"tier={BIG}"}, {"good"}),
        ({"metadata": json.dumps({"customer": HOSTILE})}, {"good"}),
        ({"arg": "name=late"}, {"late"}),
        ({"task": "approve", "arg": "order=7"}, {"waits"}),
        ({"since": "1h", "until": "30m"}, set[str]()),
        ({"queue": "no such queue"}, set[str]()),
    ],
)
def test_filters_choose_jobs(site: Site, jobs: Jobs, filters: dict[str, str], names: set[str]) -> None:
    path = "/jobs?" + urlencode(filters)
    found = {job["id"] for job in site.json(path)["jobs"]}
    assert {name for name, job in jobs.items() if str(job.id) in found} == names
    answer = site.get(path)
    assert answer.status == 200
    assert is_safe(answer.text)


@pytest.mark.parametrize(
    "query", ["state=odd", "worker=1", "before=1", "since=often", "sort=up", "limit=0", "metadata=x", "queue=%00"]
)
def test_a_wrong_filter_is_named(site: Site, query: str) -> None:
    answer = site.get(f"/jobs?{query}")
    assert answer.status == 400
    assert query.partition("=")[0] in answer.text


def test_pages_follow_each_other_in_both_orders(site: Site, jobs: Jobs) -> None:
    for sort in ("newest", "oldest"):
        seen: list[str] = []
        query = f"sort={sort}&limit=3"
        while query:
            found = site.json(f"/jobs?{query}")
            seen += [job["id"] for job in found["jobs"]]
            query = f"sort={sort}&limit=3&before={found['next']}" if found["next"] else ""
        assert seen == sorted(seen, reverse=sort == "newest")
        assert {str(job.id) for job in jobs.values()} <= set(seen)
    page = site.get("/jobs?limit=3&task=greet").text
    assert 'rel="next"' in page
    assert "task=greet" in page.partition('id="next"')[0].rpartition("href=")[2]


def test_a_list_in_another_order_says_what_it_has_sorted(site: Site, shop: App) -> None:
    for n in (3, 1, 2):
        shop.tasks["greet"].using(queue="later", delay=f"{n}h", priority=-n).enqueue(str(n))
    found = site.json("/jobs?queue=later&state=scheduled&sort=due&limit=2")
    assert [job["args"] for job in found["jobs"]] == [{"name": "1"}, {"name": "2"}]
    assert (found["sorted"]["whole"], found["sorted"]["next"], found["next"]) == (True, 2, None)
    found = site.json("/jobs?queue=later&state=scheduled&sort=due&limit=2&offset=2")
    assert ([job["args"]["name"] for job in found["jobs"]], found["sorted"]["next"]) == (["3"], None)
    page = site.get("/jobs?queue=later&state=scheduled&sort=due").text
    assert "Due first, of all that match." in page
    assert '<option value="due" selected>' in page
    found = site.json("/jobs?queue=later&sort=priority")
    assert [job["args"]["name"] for job in found["jobs"]] == ["1", "2", "3"]
    # The next page and the acts keep the filters.
    page = site.get("/jobs?queue=later&sort=priority&limit=2&state=scheduled").text
    assert "sort=priority&amp;offset=2" in page.partition('id="next"')[0].rpartition("href=")[2]


def test_a_list_that_sorts_only_the_newest_says_so_and_leads_to_older_ones(
    empty: Site, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("select stepwell.make_partitions(array[86400, 2592000])")
    conn.execute(
        "insert into stepwell.history (id, expires_at, finished_at, claimed_at, run_at, enqueued_at, epoch, attempt,"
        " rank, state, task, queue, args) select stepwell.uuid7(), now() + interval '1 day', now(),"
        " now() - n * interval '1 second', now(), now(), 1, 1, 0, 'succeeded', 'many', 'many', '{}'"
        " from generate_series(1, 1100) as g (n)"
    )
    conn.commit()
    first = empty.get("/jobs?sort=runtime&patience=2000").text
    assert "Longest run first, within the newest 1,000 that match. Narrow the filters to sort all." in first
    last = empty.get("/jobs?sort=runtime&patience=2000&offset=950").text
    assert "Sorted the 1,000 newest that match, back to" in last
    older = unescape(last.partition(' id="further"')[0].rpartition('href="')[2].rstrip('"'))
    rest = empty.json(older)
    assert (rest["sorted"]["over"], rest["next"]) == (100, None)


def test_hidden_fields_are_hidden_and_cannot_be_searched_for(site: Site, jobs: Jobs) -> None:
    found = site.json(f"/jobs/{jobs['secret'].id}")
    assert found["metadata"] == {"password": "[redacted]"}
    for query in ("arg=hunter2", "arg=password=hunter2", "arg=user.Password=hunter2", "metadata=password=hunter2"):
        assert site.get("/jobs?" + query).status == 400, query


def test_odd_names_lead_to_their_pages(site: Site, jobs: Jobs) -> None:
    [queue] = site.json("/queues?" + urlencode({"name": ODD}))["queues"]
    assert (queue["name"], queue["counts"]["ready"], queue["counts"]["scheduled"]) == (ODD, 1, 1)
    assert queue["paused_at"]
    [schedule] = site.json("/schedules?" + urlencode({"name": ODD, "owner": "shop"}))["schedules"]
    assert (schedule["name"], schedule["words"]) == (ODD, "at 02:30, Monday to Friday")
    assert len(schedule["next_runs"]) == 3
    assert quote("a/b.c%d", safe="") in site.get("/queues").text


def test_the_overview_names_what_needs_a_person(site: Site, jobs: Jobs) -> None:
    found = site.json("/")
    assert found["states"]["failed"] == 1
    assert any("no worker is alive" in notice["text"] for notice in found["notices"])
    assert found["failures"][0]["id"] == str(jobs["bad"].id)


def test_failures_are_grouped(site: Site, jobs: Jobs) -> None:
    [group] = site.json("/failures")["groups"]
    assert (group["task"], group["count"], group["type"]) == ("greet", 1, "stepwell.Fail")


def test_the_database_page_names_the_holder_of_an_old_snapshot(site: Site, module_dsn: str) -> None:
    with psycopg.connect(module_dsn, application_name="the culprit") as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select 1 from stepwell.clock")
        found = site.json("/database")
        assert "the culprit" in [snapshot["name"] for snapshot in found["snapshots"]]
    assert {"history", "failure"} <= {part["table"] for part in found["partitions"]}
    assert site.json("/database/listener")["status"] == "ok"


def test_what_is_not_there_is_said(site: Site) -> None:
    for path in ("/nowhere", f"/jobs/{uuid4()}", "/tasks/enqueue?task=none", "/static/none.js"):
        assert site.get(path).status == 404, path
    assert site.get("/jobs/not-an-id").status == 404
    assert site.ask("GET", f"/jobs/{uuid4()}", None, {"Accept": "application/json"}).json["error"]


def test_static_files_are_kept_by_browsers(site: Site) -> None:
    for name in (
        "htmx.min.js",
        "dashboard.js",
        "tables.js",
        "style.css",
        "tables.css",
        "theme.js",
        "icon.svg",
        "htmx.LICENSE.txt",
    ):
        answer = site.get(f"/static/{name}")
        assert answer.status == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.fixture
def empty(dsn: str) -> Iterator[Site]:
    with served(Dashboard(App(dsn))) as found:
        yield found


def test_an_empty_database_has_pages(empty: Site) -> None:
    for path in PAGES:
        assert empty.get(path).status == 200, path
        empty.json(path)


def test_values_that_python_cannot_read_do_not_hide_the_page(empty: Site, conn: psycopg.Connection[Any]) -> None:
    deep = "[" * 3000 + "]" * 3000
    row = conn.execute("select stepwell.enqueue('deep', %s::json)", (json.dumps({"n": 0})[:-1] + f', "d": {deep}}}',))
    [job_id] = row.fetchone() or [None]
    conn.execute("select stepwell.enqueue('huge', ('{\"n\": ' || repeat('9', 5000) || '}')::json)")
    assert empty.get(f"/jobs/{job_id}").status == 200
    assert empty.get("/jobs").status == 200
    assert len(empty.json("/jobs")["jobs"]) == 2


def test_a_trouble_in_the_last_of_many_queues_is_named(empty: Site, conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args) select stepwell.uuid7(), now(),"
        " now(), 'ready', 'many', 'q' || to_char(n, 'fm00000'), '{}' from generate_series(1, 150) as g (n)"
    )
    conn.execute("select stepwell.pause('q00150')")
    assert "Queue q00150 is paused, and jobs are ready in it." in [n["text"] for n in empty.json("/")["notices"]]
    assert 'id="looked"' not in empty.get("/").text


def test_the_overview_says_how_many_queues_it_is_about(empty: Site, conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "insert into stepwell.job (id, run_at, enqueued_at, state, task, queue, args) select stepwell.uuid7(), now(),"
        " now(), 'ready', 'many', 'q' || to_char(n, 'fm00000'), '{}' from generate_series(1, 30000) as g (n)"
    )
    page = empty.get("/").text
    assert re.search(r"this is about the first [\d,]+, by name", page)
    assert "Nothing needs you." not in page


def test_long_lists_have_a_next_page(empty: Site, conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "select stepwell.register_worker('host', n, '0', '{default}',"
        " jsonb_build_object('task' || n, '{}'::jsonb)::text, 1, 60) from generate_series(1, 501) as g (n)"
    )
    conn.execute(
        "insert into stepwell.schedule (id, owner, name, task, queue, args, rank, cron, tz, overlap, catchup, jitter,"
        " declared, declared_at, created_at)"
        " select stepwell.uuid7(), 'shop', 'tick' || n, 'work', 'default', '{}', 0, '* * * * *',"
        " 'UTC', 'skip', 0, 0, false, now(), now() from generate_series(1, 201) as g (n)"
    )
    conn.execute("select stepwell.start_bulk('retry', '{}') from generate_series(1, 201)")
    for path, kind, count in (
        ("/workers", "workers", 501),
        ("/schedules", "schedules", 201),
        ("/tasks", "tasks", 502),
        ("/bulk", "bulks", 201),
    ):
        found, url = list[Any](), path
        while url:
            found += empty.json(url)[kind]
            page = empty.get(url).text
            match = re.search(r'href="([^"]*)" id="next"', page)
            if match is None:
                assert "The end of the list." in page, url
                assert f'href="{path}' in page, "the way back to the first page"
            url = html.unescape(match[1]) if match else ""
        assert len(found) == len({each.get("id") or each["name"] for each in found}) == count, path
    assert empty.get("/workers?before=" + "9" * 5000).status == 400
    assert empty.get("/bulk?before=x").status == 400
