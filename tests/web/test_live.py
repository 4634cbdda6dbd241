"""Live update, and a database that goes away, comes back, or takes no writes."""

from __future__ import annotations

import asyncio
import html
import http.client
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from waiting import auntil, until
from web.site import OURS, PAGES, Site, served

from stepwell import App
from stepwell.postgres import rights
from stepwell.web import Dashboard
from stepwell.web.live import Pulse


def test_an_open_page_hears_of_a_change(site: Site, shop: App) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)
    connection.request("GET", "/live")
    response = connection.getresponse()
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.readline() == b"retry: 500\n"
    shop.tasks["greet"].using(delay="1h").enqueue("Ada")
    heard = [response.readline().strip() for _ in range(3)]
    assert b"event: changed" in heard
    connection.close()


async def test_a_page_that_was_made_before_the_last_change_hears_of_it_at_once(shop: App) -> None:
    """No page was open at the change, and none comes after it."""
    pulse = Pulse(shop)
    now = (await pulse.now())["seen"]
    assert [event async for event in events(pulse, "old", 1)] == [f"event: changed\nid: {now}\ndata:\n\n"]
    await until_idle(pulse)
    # The watcher of this stream finds what the last one has found.
    assert [event async for event in events(pulse, "older", 1)] == [f"event: changed\nid: {now}\ndata:\n\n"]
    await until_idle(pulse)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            assert [event async for event in events(pulse, now, 1)] == []


async def events(pulse: Pulse, seen: str, count: int) -> AsyncGenerator[str]:
    """The first events of a stream, after its retry time."""
    async with aclosing(cast("AsyncGenerator[str]", pulse.stream(seen).body_iterator)) as stream:
        assert (await anext(stream)).startswith("retry")
        for _ in range(count):
            yield await anext(stream)


async def until_idle(pulse: Pulse) -> None:
    """Wait until nobody watches any more."""
    await auntil(lambda: pulse._watching is None or pulse._watching.done())  # pyright: ignore[reportPrivateUsage]


@pytest.mark.slow
def test_a_database_that_is_away_is_said_and_the_page_comes_back(dsn: str, server: psycopg.Connection[Any]) -> None:
    name = sql.Identifier(str(conninfo_to_dict(dsn)["dbname"]))
    app = App(dsn, call_timeout="1s")
    with served(Dashboard(app)) as site:
        assert site.get("/").status == 200
        server.execute(sql.SQL("alter database {} with allow_connections false").format(name))
        server.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s",
            (conninfo_to_dict(dsn)["dbname"],),
        )
        away = site.get("/jobs")
        assert away.status == 503
        assert "The database does not answer" in away.text
        assert site.ask("GET", "/", None, {"Accept": "application/json"}).json["error"]
        server.execute(sql.SQL("alter database {} with allow_connections true").format(name))
        until(lambda: site.get("/").status == 200)


def test_a_database_without_the_schema_says_what_to_do(empty_dsn: str) -> None:
    with served(Dashboard(App(empty_dsn))) as site:
        answer = site.get("/")
        assert answer.status == 503
        assert "stepwell migrate" in answer.text


def test_a_read_only_database_is_for_looking(dsn: str) -> None:
    app = App(make_conninfo(dsn, options="-c default_transaction_read_only=on", target_session_attrs="any"))
    with App(dsn) as writer:

        @writer.task
        def add(a: int) -> int:
            return a

        job = add.using(delay="1h").enqueue(1)
    with served(Dashboard(app)) as site:
        page = site.get(f"/jobs/{job.id}")
        assert page.status == 200
        assert 'id="read-only"' in page.text
        assert "/cancel" not in page.text
        refused = site.post(f"/jobs/{job.id}/cancel", headers={**OURS, "Accept": "application/json"})
        assert refused.status == 409
        assert "takes no writes" in refused.json["error"]
        for path in PAGES:
            assert site.get(path).status == 200, path


def test_the_rights_of_a_viewer_in_the_database_are_enough_to_look(dsn: str, conn: psycopg.Connection[Any]) -> None:
    role = f"r{uuid4().hex[:12]}"
    conn.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
    rights.grant(conn, role, ["viewer"])
    try:
        job = conn.execute("select stepwell.enqueue('add', '{}'::json)").fetchone()
        assert job is not None
        app = App(make_conninfo(dsn, options=f"-c role={role}"))
        with served(Dashboard(app)) as site:
            for path in (*PAGES, f"/jobs/{job[0]}", f"/jobs/{job[0]}/steps"):
                assert site.get(path).status == 200, path
            refused = site.post(f"/jobs/{job[0]}/cancel")
            assert refused.status == 403
            assert "--as operator" in html.unescape(refused.text)
        app.close()
    finally:
        conn.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
        conn.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


async def test_a_lifespan_checks_the_database_at_once(dsn: str) -> None:
    dashboard = Dashboard(App(dsn))
    async with dashboard.lifespan():
        assert (await dashboard.app.database.afetch_each([])) == []
