"""Acts on all jobs that match, on failures, schedules and running handlers, as a person does them."""

from __future__ import annotations

import re
from typing import Any

from playwright.async_api import Page, expect
from waiting import auntil
from web.browser.story import Story
from web.browser.test_acts import later, said

from stepwell import JobHandle


async def test_all_that_match_are_previewed_confirmed_by_their_number_and_changed(page: Page, story: Story) -> None:
    jobs = [await later(story, queue="bulk") for _ in range(3)]
    await page.goto(f"{story.url}/jobs?state=scheduled&queue=bulk")
    address = page.url
    await page.locator("#all-cancel").click()
    await expect(page.get_by_role("heading", name="Cancel 3 jobs")).to_be_visible()
    await expect(page.locator("#examples tbody tr")).to_have_count(3)
    # Another number is not sent.
    await page.get_by_label("Type 3 to confirm").fill("2")
    await page.get_by_role("button", name="Cancel 3 jobs").click()
    assert "/jobs/bulk?" in page.url
    await page.get_by_label("Type 3 to confirm").fill("3")
    await page.get_by_role("button", name="Cancel 3 jobs").click()
    await said(page, "has started")
    await expect(page.locator("#bulk-state")).to_have_text("done")
    await expect(page.locator("#progress")).to_contain_text("3 of 3")
    assert [await story.state(job) for job in jobs] == ["cancelled"] * 3
    await page.get_by_role("link", name="Back to the list").click()
    await page.wait_for_url(address)


async def test_selected_jobs_are_moved_and_deleted(page: Page, story: Story) -> None:
    jobs = [await later(story, queue="before") for _ in range(2)]
    await page.goto(f"{story.url}/jobs?queue=before")
    await page.get_by_label("Select all on this page").check()
    await page.get_by_label("Queue to move to").fill("after")
    await page.get_by_role("button", name="Move 2").click()
    await said(page, "2 jobs")
    for job in jobs:
        await job.acancel()
    await page.goto(f"{story.url}/jobs?queue=after&state=cancelled")
    await page.get_by_label("Select all on this page").check()
    await page.get_by_role("button", name="Delete 2").click()
    await page.get_by_role("button", name="Go ahead").click()
    await said(page, "2 jobs")
    assert [await job.ainfo() for job in jobs] == [None, None]


async def test_a_failure_is_resolved_ignored_and_reopened(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/failures?task=charge_card")
    await page.get_by_role("link", name="CardDeclined").click()
    state = page.locator(".heading .badge")
    await page.get_by_role("button", name="Resolve").click()
    await expect(state).to_have_text("resolved")
    await page.get_by_role("button", name="Ignore").click()
    await expect(state).to_have_text("ignored")
    await page.get_by_role("button", name="Reopen").click()
    await expect(state).to_have_text(re.compile("^open"))
    await page.get_by_role("link", name="Retry failed jobs").click()
    await expect(page.get_by_role("heading", name=re.compile(r"Retry \d+ job"))).to_be_visible()


async def test_the_stack_of_a_running_handler_is_shown(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/jobs/{story.ids['running']}")
    await page.get_by_role("button", name="Show the stack").click()
    await expect(page.locator("#stack-text")).to_contain_text("import_catalog")


async def test_a_job_is_retried_from_a_step(page: Page, story: Story) -> None:
    job = await story.task("checkout").aenqueue(7)
    await auntil(lambda: _waits(story, job))
    await job.acancel("to be retried")
    await page.goto(f"{story.url}/jobs/{job.id}")
    await page.locator("tr", has_text="price").get_by_role("button", name="Retry from here").click()
    await said(page, "The job will run again")
    await job.acancel()


async def test_a_schedule_is_backfilled_after_a_preview(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/schedules?owner=shop&name=stock+of+Ghent")
    await page.get_by_label("Since").fill("15d")
    await page.get_by_role("button", name="Preview").click()
    await expect(page.locator("#backfill-count")).to_have_text("2")
    await page.get_by_role("button", name="Enqueue 2 runs").click()
    await said(page, "2")


async def test_everything_is_paused_and_resumed(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/queues")
    await page.get_by_role("button", name="Pause everything").click()
    await page.get_by_role("button", name="Go ahead").click()
    await said(page, "Everything is paused")
    await page.get_by_role("button", name="Resume everything").click()
    await said(page, "Everything is resumed")


async def _waits(story: Story, job: JobHandle[Any]) -> bool:
    return await story.state(job) == "waiting"
