"""The page of a job with many steps or log lines shows the first of them, and loads more by a click."""

from __future__ import annotations

import psycopg
import pytest
import pytest_asyncio
from playwright.async_api import Page, expect
from web.browser.story import Story

STEPS, LINES = 230, 230
"""More than two windows of each."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def long_job(story: Story) -> str:
    job = await story.task("checkout").using(delay="1h", queue="long").aenqueue(1)
    async with await psycopg.AsyncConnection.connect(story.app.dsn, autocommit=True) as conn:
        await conn.execute("update stepwell.job set durable = true where id = %s", (job.id,))
        await conn.execute(
            "insert into stepwell.step (job_id, saved_at, seconds, n, epoch, kind, key, value)"
            " select %s, now() - (1000 - n) * interval '1 s', 0.5, n, 1, 'step', 'charge#' || n, to_json(n)"
            " from generate_series(1, %s) n",
            (job.id, STEPS),
        )
        await conn.execute(
            "select stepwell.write_logs(array_agg(%s::uuid), array_agg(1), array_agg(now()),"
            " array_agg(case when n %% 2 = 0 then 30 else 20 end), array_agg('shop'::text), array_agg('line ' || n),"
            " %s::uuid[], '{0}') from generate_series(1, %s) n",
            (job.id, [job.id], LINES),
        )
    return str(job.id)


async def ids(page: Page, selector: str) -> list[str]:
    return await page.locator(selector).evaluate_all("all => all.map((each) => each.id)")


async def test_more_steps_are_loaded_until_all_are_there(page: Page, story: Story, long_job: str) -> None:
    await page.goto(f"{story.url}/jobs/{long_job}")
    rows, more = "table.steps tr[id^=step-]", page.get_by_role("link", name="Next steps")
    for there in (100, 200, STEPS):
        await expect(page.locator(rows)).to_have_count(there)
        assert await ids(page, rows) == [f"step-{n}" for n in range(1, there + 1)]
        # One link, after the last step that is there.
        await expect(more).to_have_count(1 if there < STEPS else 0)
        if there < STEPS:
            await more.click()
    last = page.locator(f"#step-{STEPS}")
    await expect(last).to_contain_text(f"charge#{STEPS}")
    await expect(last.get_by_role("button", name="Fork")).to_be_visible()
    assert float(await last.locator("svg rect").last.get_attribute("width") or 0) > 0


async def test_older_lines_are_loaded_before_those_that_are_there(page: Page, story: Story, long_job: str) -> None:
    await page.goto(f"{story.url}/jobs/{long_job}")
    lines, more = "ol.log li[id^=line-]", page.get_by_role("link", name="Older lines")
    for there in (100, 200, LINES):
        await expect(page.locator(lines)).to_have_count(there)
        assert await ids(page, lines) == [f"line-{n}" for n in range(LINES - there + 1, LINES + 1)]
        await expect(more).to_have_count(1 if there < LINES else 0)
        if there < LINES:
            await more.click()


async def test_older_lines_have_the_level_that_is_shown(page: Page, story: Story, long_job: str) -> None:
    await page.goto(f"{story.url}/jobs/{long_job}")
    await page.get_by_role("navigation", name="Least level").get_by_role("link", name="warning").click()
    lines = page.locator("ol.log li[id^=line-]")
    await expect(page.locator("#line-229")).to_have_count(0)
    await expect(lines).to_have_count(100)
    await page.get_by_role("link", name="Older lines").click()
    await expect(lines).to_have_count(LINES // 2)
    await expect(page.locator("ol.log li.warning[id^=line-]")).to_have_count(LINES // 2)


@pytest.mark.slow
async def test_a_page_of_which_more_was_loaded_stays_as_it_is(page: Page, story: Story, long_job: str) -> None:
    await page.goto(f"{story.url}/jobs/{long_job}")
    await page.locator(".live.on").wait_for()
    await page.get_by_role("link", name="Next steps").click()
    rows = page.locator("table.steps tr[id^=step-]")
    await expect(rows).to_have_count(200)
    changed = await story.task("nightly_report").using(delay="1h").aenqueue("2026-11-09")
    await page.locator(".live.held").wait_for()
    await expect(rows).to_have_count(200)
    await changed.acancel()
