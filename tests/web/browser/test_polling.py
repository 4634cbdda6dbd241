"""A page of a WSGI site, whose server cannot hold a stream, asks for changes."""

from __future__ import annotations

import pytest
from flask import Flask
from playwright.async_api import Page, expect
from web.browser.story import Story
from web.site import served_by_wsgi

from stepwell import App
from stepwell.contrib.flask import Stepwell
from stepwell.web import User


async def test_a_page_that_polls_changes_without_a_reload(page: Page, story: Story) -> None:
    site = Flask("shop")
    jobs = App(story.app.database.dsn, name="shop")
    Stepwell(site, jobs).mount_dashboard("/desk", auth=lambda: User("ada"))
    with served_by_wsgi(site) as found:
        job = await story.task("nightly_report").using(delay="1h").aenqueue("2026-11-07")
        await page.goto(f"http://127.0.0.1:{found.port}/desk/jobs/{job.id}")
        await page.locator(".live.on").wait_for()
        await page.evaluate("window.marked = true")
        await page.get_by_role("button", name="Run now").click()
        await expect(page.locator("#said")).to_contain_text("The job will run now")
        await page.evaluate("window.marked = true")
        await job.acancel("enough")
        await expect(page.locator(".heading .state")).to_have_text("cancelled")
        assert await page.evaluate("window.marked")
        await page.goto("about:blank")


@pytest.mark.slow
async def test_a_page_whose_stream_is_refused_begins_to_poll(page: Page, story: Story) -> None:
    # As by a proxy that lets no stream through.
    await page.route(
        "**/live*",
        lambda route: route.continue_() if "json" in route.request.headers["accept"] else route.fulfill(status=502),
    )
    job = await story.task("nightly_report").using(delay="1h").aenqueue("2026-11-06")
    await page.goto(f"{story.url}/jobs/{job.id}")
    await page.locator(".live.on").wait_for()
    await job.acancel("enough")
    await expect(page.locator(".heading .state")).to_have_text("cancelled")
