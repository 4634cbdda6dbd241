"""Pages change by themselves, and stay as they are while somebody works on them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from playwright.async_api import Page, expect
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from web.browser.story import Story
from web.site import served

from stepwell import App
from stepwell.postgres.migrate import script
from stepwell.web import Dashboard


async def is_same_document(page: Page) -> bool:
    """Whether the page has not been loaded again since `mark`."""
    return bool(await page.evaluate("window.marked === true"))


async def mark(page: Page) -> None:
    await page.evaluate("window.marked = true")
    await page.locator(".live.on").wait_for()


async def test_a_job_that_ends_is_seen_to_end_without_a_reload(page: Page, story: Story) -> None:
    job = await story.task("sync_stock").using(delay="1h").aenqueue("Oslo")
    await page.goto(f"{story.url}/jobs/{job.id}")
    await mark(page)
    await expect(page.locator(".heading .state")).to_have_text("scheduled")
    await job.arun_now()
    await expect(page.locator(".heading .state")).to_have_text("succeeded")
    await expect(page.locator("#result")).to_have_text("4")
    assert await is_same_document(page)


async def test_new_jobs_appear_in_the_list_but_not_while_rows_are_selected(page: Page, story: Story) -> None:
    async def add() -> Any:
        return await story.task("resize_image").using(delay="1h", queue="still").aenqueue("a.png", 1)

    first = await add()
    await page.goto(f"{story.url}/jobs?queue=still")
    await mark(page)
    rows = page.locator("#jobs tbody tr")
    await expect(rows).to_have_count(1)
    await page.get_by_label(f"Select job {first.id}").check()
    second = await add()
    await page.locator(".live.held").wait_for()
    await expect(rows).to_have_count(1)
    await expect(page.get_by_label(f"Select job {first.id}")).to_be_checked()
    await page.get_by_role("button", name="Clear").click()
    await expect(rows).to_have_count(2)
    # A dialog holds the page, too.
    await page.keyboard.press("?")
    third = await add()
    await page.locator(".live.held").wait_for()
    await expect(rows).to_have_count(2)
    await page.keyboard.press("Escape")
    await expect(rows).to_have_count(3)
    assert await is_same_document(page)
    for job in (first, second, third):
        await job.acancel()


async def test_a_page_stays_while_somebody_types(page: Page, story: Story) -> None:
    job = await story.task("nightly_report").using(delay="1h").aenqueue("2026-11-10")
    await page.goto(f"{story.url}/jobs/{job.id}")
    await mark(page)
    await page.get_by_text("Edit the arguments").click()
    await page.locator("#edit-args").fill('{"day": "typed"}')
    await job.acancel()
    await page.locator(".live.held").wait_for()
    await expect(page.locator("#edit-args")).to_have_value('{"day": "typed"}')
    await expect(page.locator(".heading .state")).to_have_text("scheduled")


async def test_an_error_page_does_not_load_itself_again(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/nowhere")
    await mark(page)
    job = await story.task("sync_stock").using(delay="1h").aenqueue("Oslo")
    async with page.expect_response(lambda answer: answer.url.endswith("/nowhere")):
        await job.acancel()
    assert await is_same_document(page)


@pytest.mark.slow
async def test_a_database_that_goes_away_is_said_and_the_page_comes_back(
    page: Page, dsn: str, server: psycopg.Connection[Any]
) -> None:
    name = str(conninfo_to_dict(dsn)["dbname"])

    def allow(allowed: bool) -> None:
        literal = sql.SQL("true" if allowed else "false")
        server.execute(sql.SQL("alter database {} with allow_connections {}").format(sql.Identifier(name), literal))
        if not allowed:
            server.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))

    app = App(dsn, call_timeout="1s")
    with served(Dashboard(app)) as site:
        url = f"http://127.0.0.1:{site.port}"
        await page.goto(url)
        await mark(page)
        allow(False)
        await expect(page.get_by_role("alert")).to_contain_text("The database does not answer")
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        await page.goto(f"{url}/queues")
        await expect(page.get_by_role("heading", name="The database does not answer")).to_be_visible()
        allow(True)
        await expect(page.get_by_role("heading", name="Queues")).to_be_visible()
        await page.goto("about:blank")  # or the server would wait for the stream of the page


async def test_a_page_without_a_schema_continues_when_it_is_there(page: Page, empty_dsn: str) -> None:
    with served(Dashboard(App(empty_dsn))) as site:
        await page.goto(f"http://127.0.0.1:{site.port}/queues")
        await expect(page.get_by_role("heading", name="The schema is missing")).to_be_visible()
        await expect(page.locator("main")).to_contain_text("stepwell migrate")
        # The stream says that there is nothing to read, and the page does not say something else.
        await expect(page.locator(".live.off")).to_have_text("waiting")
        await expect(page.locator("#away")).to_be_hidden()
        async with await psycopg.AsyncConnection.connect(empty_dsn, autocommit=True) as connection:
            await connection.execute(script().encode())
        await expect(page.get_by_role("heading", name="Queues")).to_be_visible(timeout=15_000)
        await page.goto("about:blank")
