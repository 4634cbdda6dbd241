"""Faults that dashboards of others had, and that this one must not have. Most others are tested with their page."""

from __future__ import annotations

import re

import psycopg
from web.site import Site, served

from stepwell import App
from stepwell.postgres.migrate import migrate
from stepwell.testing import drain
from stepwell.web import Dashboard


def test_a_rare_state_is_found_behind_many_newer_jobs(site: Site, shop: App) -> None:
    greet = shop.tasks["greet"]
    rare = greet.using(delay="1h").enqueue("rare")
    rare.cancel("withdrawn")
    greet.using(queue="many").enqueue_many([{"name": str(number)} for number in range(4000)])
    found = site.json("/jobs?state=cancelled&limit=10")
    assert str(rare.id) in [job["id"] for job in found["jobs"]]
    assert str(rare.id) in [job["id"] for job in site.json("/jobs?state=cancelled&error=withdrawn&task=greet")["jobs"]]
    assert site.json("/")["states"]["cancelled"] >= 1
    shop.cancel_jobs(queue="many")


def test_a_database_without_the_schema_is_said_with_the_command_that_creates_it(empty_dsn: str) -> None:
    app = App(empty_dsn)
    with served(Dashboard(app)) as site:
        for path in ("/", "/jobs"):
            answer = site.get(path)
            assert answer.status == 503
            assert "The schema is missing" in answer.text
            assert "stepwell migrate" in answer.text
            assert "does not answer" not in answer.text.partition("<main")[2].partition("</main>")[0]
        answer = site.get("/jobs", Accept="application/json")
        assert (answer.status, "stepwell migrate" in answer.json["error"]) == (503, True)
        with psycopg.connect(empty_dsn, autocommit=True) as connection:
            migrate(connection, target=10)
        # Of an older schema, too, which has no function for the dashboard.
        answer = site.get("/jobs", Accept="application/json")
        assert (answer.status, "stepwell migrate" in answer.json["error"]) == (503, True)
        with psycopg.connect(empty_dsn, autocommit=True) as connection:
            migrate(connection)
        assert site.get("/jobs").status == 200


def test_a_clock_that_was_set_back_shows_no_negative_time(site: Site, shop: App, module_dsn: str) -> None:
    job = shop.tasks["greet"].using(queue="back").enqueue("Ada")
    drain(shop)
    with psycopg.connect(module_dsn) as connection:
        connection.execute(
            "update stepwell.history set claimed_at = finished_at + interval '1 hour',"
            " enqueued_at = finished_at + interval '2 hours' where id = %s",
            (job.id,),
        )
    for path in (f"/jobs/{job.id}", "/jobs?queue=back"):
        page = site.get(path)
        assert page.status == 200
        text = re.sub(r"<[^>]+>", " ", page.text)
        assert not re.search(r"(?<![\w-])-\d+(\.\d+)? ?(ms|s|m|h|d)\b", text), path
