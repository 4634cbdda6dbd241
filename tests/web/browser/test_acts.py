"""Every act, as a person does it: by clicks on the pages."""

from __future__ import annotations

import re
from typing import Any

from playwright.async_api import Page, expect
from web.browser.story import Story

from stepwell import JobHandle


async def said(page: Page, text: str) -> None:
    await expect(page.locator("#said")).to_contain_text(text)


async def later(story: Story, **options: Any) -> JobHandle[Any]:
    return await story.task("nightly_report").using(**{"delay": "1h", **options}).aenqueue("2026-11-08")


async def test_a_job_is_cancelled_retried_and_run(page: Page, story: Story) -> None:
    job = await later(story)
    await page.goto(f"{story.url}/jobs/{job.id}")
    await page.get_by_role("button", name="Run now").click()
    await said(page, "The job will run now")
    assert await story.state(job) == "ready"
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Keep").click()
    assert await story.state(job) == "ready"
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Go ahead").click()
    await said(page, "The job is cancelled")
    await page.get_by_role("button", name="Retry").click()
    await said(page, "The job will run again")
    await page.get_by_role("button", name="Close").first.click()
    await expect(page.locator("#said")).to_have_count(0)
    await job.acancel()


async def test_filters_are_kept_after_an_act_on_selected_jobs(page: Page, story: Story) -> None:
    queue = "a/b.c%d"
    jobs = [await later(story, queue=queue) for _ in range(3)]
    await page.goto(f"{story.url}/jobs")
    await page.get_by_label("Queue", exact=True).fill(queue)
    await page.get_by_role("button", name="Filter").click()
    await page.locator(".tabs").get_by_role("link", name="scheduled").click()
    await expect(page.locator("#jobs tbody tr")).to_have_count(3)
    address = page.url
    await page.get_by_label("Select all on this page").check()
    await page.get_by_label(f"Select job {jobs[0].id}").uncheck()
    await expect(page.locator("#selected-count")).to_have_text("2 jobs selected")
    for name in ("Move 2", "Retry 2", "Run 2 now", "Delete 2"):
        await expect(page.get_by_role("button", name=name, exact=True)).to_be_visible()
    await page.get_by_role("button", name="Cancel 2").click()
    await expect(page.locator("#confirm-text")).to_have_text("Cancel 2 selected jobs?")
    await page.get_by_role("button", name="Go ahead").click()
    await said(page, "2 jobs are cancelled")
    assert page.url == address
    await expect(page.locator("#jobs tbody tr")).to_have_count(1)
    assert [await story.state(job) for job in jobs] == ["scheduled", "cancelled", "cancelled"]
    await page.get_by_label(f"Select job {jobs[0].id}").check()
    await page.get_by_role("button", name="Delete 1").click()
    await expect(page.locator("#confirm-text")).to_have_text("Delete 1 selected job for good?")
    await page.get_by_role("button", name="Keep").click()
    await page.get_by_role("button", name="Run 1 now").click()
    await said(page, "The job will run now")
    await page.locator(".tabs").get_by_role("link", name="cancelled").click()
    await page.get_by_label("Select all on this page").check()
    await page.get_by_role("button", name="Retry").click()
    await said(page, "2 jobs will run again")
    await story.app.acancel_jobs(queue=queue)


async def test_the_arguments_of_a_waiting_job_are_edited_exactly(page: Page, story: Story) -> None:
    job = await story.task("charge_card").using(delay="1h").aenqueue(1, 2**60 + 1)
    await page.goto(f"{story.url}/jobs/{job.id}")
    await expect(page.locator("#args")).to_contain_text(str(2**60 + 1))
    await page.get_by_text("Edit the arguments").click()
    text = await page.locator("#edit-args").input_value()
    await page.locator("#edit-args").fill(text.replace('"order": 1', f'"order": {2**53 + 1}'))
    await page.get_by_role("button", name="Save").click()
    await said(page, "The args were changed")
    info = await job.ainfo()
    assert info is not None
    assert info.args == {"order": 2**53 + 1, "cents": 2**60 + 1}
    await job.acancel()


async def test_a_job_is_cloned_with_changes(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/jobs/{story.ids['failed']}")
    await page.get_by_role("link", name="Clone").click()
    await page.get_by_label("order").fill("5")
    await page.get_by_role("textbox", name="currency").fill("SEK")
    await page.get_by_text("Options").click()
    await page.get_by_label("Delay").fill("2h")
    await page.get_by_role("button", name="Enqueue").click()
    await said(page, "The job was enqueued")
    info = await story.app.job(page.url.rpartition("/")[2]).ainfo()
    assert info is not None
    assert (info.args["order"], info.args["currency"], info.state) == (5, "SEK", "scheduled")


async def test_line_breaks_defaults_and_empty_text_of_an_argument_are_kept_apart(page: Page, story: Story) -> None:
    job = await story.task("charge_card").using(delay="1h", timeout="7s").aenqueue(1, 2, "\n a\nb\r")
    await page.goto(f"{story.url}/tasks/enqueue?task=charge_card&like={job.id}")
    way = page.get_by_label("How currency is given")
    text = page.get_by_role("textbox", name="currency")

    async def enqueued() -> Any:
        await page.get_by_text("Options").click()
        await page.get_by_label("Delay").fill("2h")
        await page.get_by_role("button", name="Enqueue").click()
        await said(page, "The job was enqueued")
        clone = story.app.job(page.url.rpartition("/")[2])
        info = await clone.ainfo()
        assert info is not None
        await clone.acancel()
        return info.args.get("currency", "not given")

    assert await enqueued() == "\n a\nb\r"
    await page.go_back()
    await text.fill('" x"')
    await way.select_option("value")
    await text.fill("\n x\ny")
    assert await enqueued() == "\n x\ny"
    await page.goto(f"{story.url}/tasks/enqueue?task=charge_card&like={job.id}")
    await way.select_option("default")
    await expect(text).to_have_value("")
    await way.select_option("json")
    await expect(text).to_have_value('"\\n a\\nb\\r"')
    await way.select_option("default")
    assert await enqueued() == "not given"
    await page.goto(f"{story.url}/tasks/enqueue?task=charge_card")
    await expect(way).to_have_value("default")
    await page.get_by_label("order").fill("1")
    await page.get_by_label("cents").fill("2")
    await text.fill("SEK")
    await expect(way).to_have_value("value")
    await text.fill("")
    assert await enqueued() == ""
    await job.acancel()


async def test_a_wrong_argument_is_named_and_what_was_typed_is_kept(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/tasks")
    await page.locator("tr", has_text="send_receipt").get_by_role("link", name="Enqueue").click()
    await page.get_by_label("order").fill("many")
    await page.get_by_label("to str").fill("<b>ada</b>")
    await page.get_by_label("language").select_option("pt")
    await page.get_by_role("button", name="Enqueue").click()
    await expect(page.get_by_role("alert").filter(has_text="order")).to_be_visible()
    await expect(page.get_by_label("to str")).to_have_value("<b>ada</b>")
    await page.get_by_label("order").fill("12")
    await page.get_by_role("button", name="Enqueue").click()
    await said(page, "The job was enqueued")


async def test_a_signal_is_sent_and_a_step_is_forked(page: Page, story: Story) -> None:
    job = await story.task("checkout").aenqueue(7)
    await page.goto(f"{story.url}/jobs/{job.id}")
    fork = page.locator("tr", has_text="price").get_by_role("button", name="Fork")
    await fork.click()
    await page.get_by_role("button", name="Go ahead").click()
    await said(page, f"This job was forked from {job.id}")
    await story.app.job(page.url.rpartition("/")[2]).acancel()
    await page.goto(f"{story.url}/jobs/{story.ids['waiting']}")
    await expect(page.get_by_label("Name")).to_have_value("approved")
    await page.get_by_label("Value, as JSON").fill('"by ada"')
    # It would end the job that other tests look at.
    await page.get_by_label("Name").fill("another")
    await page.get_by_role("button", name="Send").click()
    await said(page, "Signal another was sent")
    await job.acancel()


async def test_a_queue_is_paused_and_resumed(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/queues")
    row = page.locator("#queues tr", has_text="reports")
    await row.get_by_role("button", name="Pause").click()
    await said(page, "Queue reports is paused")
    await expect(row).to_contain_text("paused")
    await row.get_by_role("button", name="Resume").click()
    await said(page, "Queue reports is resumed")


async def test_a_task_is_paused_and_resumed(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/tasks")
    await page.locator("#tasks").get_by_role("link", name="nightly_report").click()
    await page.get_by_role("button", name="Pause").click()
    await said(page, "Task nightly_report is paused")
    await expect(page.locator("#paused")).to_be_visible()
    await page.get_by_role("button", name="Resume").click()
    await said(page, "Task nightly_report is resumed")


async def test_a_job_with_a_structured_argument_is_enqueued(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/tasks/enqueue?task=book_courier")
    parcel = page.get_by_label("parcel")
    await expect(parcel).to_have_accessible_description('{"order": int, "to": {"city": str, "street"?: str}}')
    await parcel.fill('{"order": 7, "to": {"city": "Oslo"}}')
    await page.get_by_label("at datetime").fill("2030-01-31T12:00:00Z")
    await page.get_by_role("button", name="Enqueue").click()
    await said(page, "The job was enqueued")
    info = await story.app.job(page.url.rpartition("/")[2]).ainfo()
    assert info is not None
    assert info.args["parcel"]["to"] == {"city": "Oslo"}


async def test_a_schedule_is_paused_resumed_and_triggered(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/schedules")
    row = page.locator("#schedules tr", has_text="nightly report")
    await row.get_by_role("button", name="Pause").click()
    await said(page, "Schedule nightly report is paused")
    await row.get_by_role("button", name="Resume").click()
    await said(page, "Schedule nightly report is resumed")
    await row.get_by_role("button", name="Trigger").click()
    await page.get_by_role("button", name="Go ahead").click()
    await said(page, "Schedule nightly report was triggered")
    await expect(page).to_have_url(re.compile("/jobs/"))
    await story.app.job(page.url.rpartition("/")[2]).acancel()


async def test_a_worker_is_made_quiet_and_resumed(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/workers")
    worker = page.locator(".worker").first
    await worker.get_by_role("button", name="Quiet").click()
    await said(page, "The worker claims no more jobs")
    await expect(worker).to_contain_text("quiet")
    await worker.get_by_role("button", name="Resume").click()
    await said(page, "The worker claims jobs again")
    await worker.get_by_role("button", name="Stop").click()
    await expect(page.locator("#confirm-text")).to_contain_text("finish its jobs and stop")
    await page.get_by_role("button", name="Keep").click()


async def test_the_listener_is_tested_on_the_page(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/database")
    await page.get_by_role("link", name="Test it").click()
    await expect(page.locator("#listener")).to_contain_text("ok")


async def test_a_view_is_saved_found_in_the_palette_and_deleted(page: Page, story: Story) -> None:
    jobs = [await later(story, queue="views", delay=delay) for delay in ("3h", "1h", "2h")]
    await page.goto(f"{story.url}/jobs?state=scheduled")
    await page.get_by_label("Queue", exact=True).fill("views")
    await page.get_by_label("Order").select_option("due first")
    await page.get_by_role("button", name="Filter").click()
    await expect(page.locator("#sorted")).to_have_text("Due first, of all that match.")
    rows = page.locator("#jobs tbody tr")
    for place, job in enumerate([jobs[1], jobs[2], jobs[0]]):
        await expect(rows.nth(place)).to_have_id(f"job-{job.id}")
    address = page.url
    await page.get_by_text("Save this view").click()
    await page.get_by_label("Name of the view").fill("due <soon>")
    await page.keyboard.press("Enter")
    await said(page, "The view due <soon> is saved.")
    assert page.url == address
    views = page.get_by_role("navigation", name="Saved views")
    await expect(views.get_by_role("link", name="due <soon>")).to_have_attribute("aria-current", "true")
    await expect(views.get_by_text("Save this view")).to_have_count(0)

    await page.goto(f"{story.url}/queues")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("soon")
    await expect(page.get_by_role("option", name="View due <soon>")).to_be_visible()
    await expect(page.get_by_role("option", selected=True)).to_have_text("View due <soon>")
    await page.keyboard.press("Enter")
    await page.wait_for_url(lambda url: "sort=due" in url and "queue=views" in url)
    await expect(rows).to_have_count(3)

    await views.get_by_role("link", name="Manage").click()
    row = page.locator("#saved-views tbody tr").filter(has_text="due <soon>")
    await row.get_by_role("button", name="Delete").click()
    await expect(page.locator("#confirm-text")).to_have_text("Delete the view due <soon> for everybody?")
    await page.get_by_role("button", name="Go ahead").click()
    await said(page, "The view due <soon> is deleted.")
    await expect(row).to_have_count(0)
    for job in jobs:
        await job.acancel()
