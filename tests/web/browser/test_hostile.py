"""Names, arguments and errors from somebody who wants to run a script in the browser of whoever looks at them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest_asyncio
from playwright.async_api import Page, expect
from web.browser.story import Story
from web.browser.views import VIEWS

from stepwell import App, Context, Fail
from stepwell.testing import adrain

BAD = "\"'><img src=x onerror=window.hacked=1><script>window.hacked=1</script></textarea></title>{{7*7}}"
ODD = "a/../b.c%2F%d?x#y&z=ü"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hostile(story: Story) -> dict[str, str]:
    """Jobs with hostile text wherever text can be, of an app that the worker of the story does not run."""
    app = App(story.app.database.dsn, name="evil")

    @app.task(name=BAD[:90])
    async def evil(ctx: Context, text: str) -> str:
        ctx.progress(1, 2, BAD)
        await ctx.step(step, key=BAD[:60])
        raise Fail(BAD)

    async def step() -> str:
        return BAD

    async with app:
        failed = await evil.using(queue=ODD, metadata={BAD: BAD}).aenqueue(BAD)
        await adrain(app)
        waits = await evil.using(queue=BAD[:60], delay="1h").aenqueue(BAD)
        await app.apause(BAD[:60])
        await app.aschedule_task(evil, "0 0 1 1 *", name=BAD, args={"text": BAD})
    return {"failed": str(failed.id), "waits": str(waits.id)}


async def is_unharmed(page: Page) -> bool:
    found: list[Any] = await page.evaluate(
        "[window.hacked === undefined, document.querySelectorAll('main img').length]"
    )
    return found == [True, 0]


async def test_no_view_runs_what_others_have_written(page: Page, story: Story, hostile: dict[str, str]) -> None:
    for view in VIEWS:
        await page.goto(view.url(story))
        assert await is_unharmed(page), view.name
    for path in (
        f"/jobs/{hostile['failed']}",
        f"/jobs/{hostile['waits']}",
        "/jobs?" + urlencode({"queue": BAD[:60], "arg": BAD, "error": BAD}),
        "/schedules?" + urlencode({"owner": "evil", "name": BAD}),
        "/queues?" + urlencode({"name": BAD[:60]}),
        "/tasks/enqueue?" + urlencode({"task": BAD}),
        "/" + BAD.replace("/", "%2F").replace("?", ""),
    ):
        await page.goto(story.url + path)
        assert await is_unharmed(page), path


async def test_what_an_act_says_is_text(page: Page, story: Story, hostile: dict[str, str]) -> None:
    await page.goto(f"{story.url}/queues?" + urlencode({"name": BAD[:60]}))
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("#said")).to_contain_text(f"Queue {BAD[:60]} is resumed")
    assert await is_unharmed(page)


async def test_odd_names_are_followed_by_links(page: Page, story: Story, hostile: dict[str, str]) -> None:
    await page.goto(f"{story.url}/jobs/{hostile['failed']}")
    await page.locator(".facts").get_by_role("link", name=ODD).click()
    await expect(page.get_by_role("heading", name=ODD)).to_be_visible()
    await page.get_by_role("link", name="Its jobs").click()
    await expect(page.get_by_label("Queue", exact=True)).to_have_value(ODD)
    await expect(page.locator("#jobs tbody tr")).to_have_count(1)
    await page.locator(".live.on").wait_for()  # the script that opens rows is there
    await page.locator("#jobs tbody tr").click()
    await expect(page.locator("#job-id")).to_have_text(hostile["failed"])
