"""What a job's page shows of its handler, its logs and its task, and its acts on steps."""

from __future__ import annotations

import asyncio
import html
import json
import logging
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from waiting import auntil
from web.site import HOSTILE, OURS, Site, served

from stepwell import App, Context, Fail, Worker
from stepwell.jobs.settings import settings_of
from stepwell.postgres import queries
from stepwell.testing import drain
from stepwell.web import VIEWER, Dashboard, User

JSON = {**OURS, "Accept": "application/json"}


@pytest.fixture(scope="module")
def logged(shop: App, module_dsn: str) -> str:
    """A job with 250 lines, of which every tenth is a warning."""
    job = shop.tasks["greet"].using(delay="1h").enqueue("logs")
    with psycopg.connect(module_dsn, autocommit=True) as conn:
        # The first seven lines were cut by the worker.
        conn.execute(
            "select stepwell.write_logs(array_agg(%s::uuid), array_agg(1), array_agg(now()),"
            " array_agg(case when n %% 10 = 0 then 30 else 20 end), array_agg('shop'::text), array_agg(%s || n),"
            " %s::uuid[], '{7}') from generate_series(1, 250) n",
            (job.id, HOSTILE, [job.id]),
        )
    return str(job.id)


def test_log_lines_come_in_pages_and_by_level(site: Site, logged: str) -> None:
    page = site.get(f"/jobs/{logged}").text
    assert 'id="line-257"' in page
    assert 'id="line-158"' in page
    assert 'id="line-157"' not in page
    assert HOSTILE not in page
    assert f"{HOSTILE}250" in html.unescape(page)
    older = site.json(f"/jobs/{logged}/logs?before=158")
    assert ([older["lines"][0]["line"], older["lines"][-1]["line"]], older["next"]) == ([58, 157], 58)
    oldest = site.json(f"/jobs/{logged}/logs?before=58")
    assert (oldest["lines"][0]["line"], oldest["next"], oldest["last"]) == (8, None, 257)
    assert "7 older lines were cut" in site.get(f"/jobs/{logged}/logs?before=58").text
    assert len(site.json(f"/jobs/{logged}/logs?level=warning")["lines"]) == 25
    assert site.json(f"/jobs/{logged}/logs?level=error")["lines"] == []
    assert "No line has this level" in site.get(f"/jobs/{logged}?level=error").text
    assert [line["line"] for line in site.json(f"/jobs/{logged}/logs?after=255")["lines"]] == [256, 257]


@pytest.mark.parametrize("query", ["level=loud", "before=x", "before=-1", "after=99999999999"])
def test_a_wrong_page_of_lines_is_named(site: Site, logged: str, query: str) -> None:
    answer = site.get(f"/jobs/{logged}/logs?{query}")
    assert answer.status == 400
    assert query.partition("=")[0] in answer.text


@pytest.mark.slow
async def test_a_viewer_asks_for_the_stack_of_a_running_handler(dsn: str) -> None:
    app = App(dsn)
    begun, go = asyncio.Event(), asyncio.Event()
    shop = logging.getLogger("shop")

    @app.task(logs=True, maintainer=HOSTILE, runbook="https://wiki.example/?a=1&b=<x>")
    async def waits(secret: str) -> None:
        shop.warning("<i>waiting</i>")
        begun.set()
        await go.wait()

    with served(Dashboard(app, auth=lambda _: User("eve", VIEWER))) as site:

        def ask() -> dict[str, Any]:
            return site.ask("POST", f"/jobs/{job.id}/stack", "", JSON).json

        async with Worker(app):
            job = await waits.aenqueue("hunter2")
            await begun.wait()
            found = await asyncio.to_thread(ask)
            assert found["found"]
            assert "in waits" in found["text"]
            assert "hunter2" not in found["text"]
            page = (await asyncio.to_thread(site.get, f"/jobs/{job.id}")).text
            assert f'hx-post="/jobs/{job.id}/stack"' in page
            assert HOSTILE not in page
            assert 'href="https://wiki.example/?a=1&amp;b=&lt;x&gt;"' in page
            shown = (await asyncio.to_thread(site.post, f"/jobs/{job.id}/stack")).text
            assert "in waits" in shown
            assert "<!doctype html>" in shown
            part = await asyncio.to_thread(site.post, f"/jobs/{job.id}/stack", None, {**OURS, "HX-Request": "true"})
            assert "<!doctype html>" not in part.text
            stranger = await asyncio.to_thread(
                site.post, f"/jobs/{job.id}/stack", None, {"Sec-Fetch-Site": "cross-site"}
            )
            assert stranger.status == 403
            await auntil(lambda: asyncio.to_thread(lambda: "&lt;i&gt;waiting" in site.get(f"/jobs/{job.id}").text))
            go.set()
            await job.aresult(timeout=20)
        ended = await asyncio.to_thread(ask)
        assert (ended["found"], ended["text"]) == (False, "it has ended: only a running job has a stack")
        assert site.post("/jobs/01a1eaf0-e325-752b-baaa-428a51b371fa/stack").status == 404
    await app.aclose()


def test_a_database_without_writes_has_no_stacks(dsn: str) -> None:
    with App(dsn) as writer:

        @writer.task
        def add(a: int) -> int:
            return a

        job = add.enqueue(1)
    app = App(make_conninfo(dsn, options="-c default_transaction_read_only=on"))
    with served(Dashboard(app)) as site:
        assert site.post(f"/jobs/{job.id}/stack").status == 409
        assert site.get(f"/jobs/{job.id}/logs").status == 200
        assert "without writes" in site.get("/database/listener").text
    app.close()


def test_a_failed_job_is_retried_from_a_step(site: Site, shop: App) -> None:
    ran: list[str] = []

    @shop.task(name="order/two.steps%")
    async def order(ctx: Context) -> None:
        await ctx.step(first)
        await ctx.step(second)
        raise Fail("no")

    async def first() -> None:
        ran.append("first")

    async def second() -> None:
        ran.append("second")

    job = order.enqueue()
    drain(shop)
    page = site.get(f"/jobs/{job.id}").text
    assert "Retry from here" in page
    assert site.post(f"/jobs/{job.id}/retry", {"step": "second"}).said == "The job will run again"
    drain(shop)
    assert ran == ["first", "second", "second"]
    assert "no step" in site.post(f"/jobs/{job.id}/retry", {"step": "third"}).said
    assert len(site.json(f"/jobs/{job.id}")["failures"]) == 2


def test_a_task_of_another_app_shows_the_settings_maintainer_and_runbook_that_its_worker_registered(
    site: Site, shop: App
) -> None:
    other = App("postgresql://nowhere.example/x", name="other", keep="2d")

    @other.task(name="bill/<b>", timeout="9s", maintainer=HOSTILE, runbook="javascript:alert(1)")
    async def bill(order: int) -> None: ...

    settings = {
        bill.name: {name: {"value": one.value, "source": one.source} for name, one in settings_of(bill).items()}
    }
    tasks = {bill.name: {"max_attempts": 3, "keep_failed": 60}}
    [worker] = shop.database.fetch(
        queries.fleet.register_worker(
            "host", 7, "0.0", ["x"], json.dumps(tasks), 5, 600.0, owner="other", settings=json.dumps(settings)
        )
    )
    try:
        listed = next(task for task in site.json("/tasks")["tasks"] if task["name"] == "bill/<b>")
        assert (listed["maintainer"], listed["timeout"], listed["queue"]) == (HOSTILE, 9, "default")
        page = site.get("/tasks?name=bill/%3Cb%3E").text
        assert HOSTILE not in page
        assert 'href="javascript:' not in page + site.get("/tasks").text
        assert "javascript:alert(1)" in page
        found = {one["name"]: (one["text"], one["source"]) for one in site.json("/tasks?name=bill/%3Cb%3E")["settings"]}
        assert found["timeout"] == ("9s", "task")
        assert found["keep"] == ("2d", "app")
        assert found["logs"] == ("not kept", "default")
        assert found["maintainer"] == (HOSTILE, "task")
    finally:
        shop.database.fetch(queries.fleet.unregister_worker(worker))
    assert site.get("/tasks?name=greet").status == 200
    assert site.json("/tasks?name=greet")["registered"] is False
    assert site.get("/tasks?name=none").status == 404
    assert site.get("/tasks?name=").status == 400


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        (
            '{"done": 3, "total": 10, "message": "reading <a>"}',
            'value="0.3" aria-label="Progress"></progress> 3 of 10, reading &lt;a&gt;',
        ),
        ('{"done": 1234567, "total": null, "message": null}', '<span class="reported">1,234,567 done</span>'),
        ('[1, "from SQL"]', "<code>[1, &#34;from SQL&#34;]</code>"),
    ],
)
def test_progress_is_shown_in_words_with_a_bar(
    site: Site, shop: App, module_dsn: str, progress: str, shown: str
) -> None:
    queue = uuid4().hex
    job = shop.tasks["greet"].using(delay="1h", queue=queue).enqueue("Ada")
    with psycopg.connect(module_dsn) as connection:
        connection.execute("update stepwell.job set progress = %s::json where id = %s", (progress, job.id))
    for path in (f"/jobs?queue={queue}", f"/jobs/{job.id}"):
        assert shown in site.get(path).text, path
