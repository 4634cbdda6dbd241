"""All that a person with a keyboard alone can do."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect
from web.browser.story import Story
from web.site import PAGES


async def test_a_letter_goes_to_each_page_of_the_menu(page: Page, story: Story) -> None:
    await page.goto(story.url)
    links = page.locator("header nav a")
    keys = [await link.get_attribute("data-key") for link in await links.all()]
    assert len(set(keys)) == len(keys) >= len(PAGES)
    for place, key in enumerate(keys):
        path = await links.nth(place).get_attribute("href")
        await page.keyboard.press(str(key))
        await page.wait_for_url(story.url + str(path))


async def test_the_list_of_shortcuts_opens_and_closes(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/queues")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    # While it is open, letters lead nowhere.
    await page.keyboard.press("j")
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog[open]")).to_have_count(0)
    assert page.url.endswith("/queues")


async def test_the_palette_finds_pages_and_jobs(page: Page, story: Story) -> None:
    await page.goto(story.url)
    await page.keyboard.press("Control+k")
    palette = page.get_by_role("combobox", name="Go to")
    await expect(palette).to_be_focused()
    await page.keyboard.type("ue")
    await expect(page.get_by_role("option", selected=True)).to_have_text("Queues")
    await page.keyboard.press("ArrowDown")
    await expect(page.get_by_role("option", selected=True)).to_have_text("Jobs of task ue")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{story.url}/queues")
    await page.keyboard.press("Control+k")
    await page.keyboard.type(story.ids["failed"])
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{story.url}/jobs/{story.ids['failed']}")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("a/b%&c")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{story.url}/jobs?task=a%2Fb%25%26c")
    await expect(page.get_by_label("Task", exact=True)).to_have_value("a/b%&c")


async def test_rows_are_walked_selected_and_opened(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/jobs?state=succeeded&task=resize_image")
    await page.locator(".live.on").wait_for()
    rows = page.locator("main tr[data-href]")
    await page.keyboard.press("n")
    await page.keyboard.press("n")
    await page.keyboard.press("p")
    await expect(rows.nth(0)).to_have_class("current")
    # The place is kept when the page refreshes.
    async with page.expect_response(lambda answer: "/jobs?" in answer.url):
        await story.task("sync_stock").using(delay="1h").aenqueue("Turin")
    await expect(rows.nth(0)).to_have_class("current")
    await page.keyboard.press("n")
    await page.keyboard.press("x")
    await expect(rows.nth(1).get_by_role("checkbox")).to_be_checked()
    await expect(page.locator("#selected-count")).to_have_text("1 job selected")
    await page.keyboard.press("Escape")
    await expect(rows.nth(1).get_by_role("checkbox")).not_to_be_checked()
    path = await rows.nth(1).get_attribute("data-href")
    await page.keyboard.press("Enter")
    await page.wait_for_url(story.url + str(path))


async def test_the_slash_goes_to_the_filters_and_letters_stay_there(page: Page, story: Story) -> None:
    await page.goto(f"{story.url}/jobs?state=failed")
    await page.keyboard.press("/")
    await page.keyboard.type("jobs")
    await expect(page.get_by_label("Queue", exact=True)).to_have_value("jobs")
    await page.keyboard.press("Enter")
    await page.wait_for_url(re.compile("state=failed&queue=jobs"))


@pytest.mark.parametrize("path", ["/", "/jobs", "/queues", "/jobs/{waiting}"])
async def test_tab_reaches_everything_in_order_and_shows_where_it_is(page: Page, story: Story, path: str) -> None:
    await page.goto(story.url + path.format_map(story.ids))
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    unseen: list[str] = []
    seen: set[str] = set()
    last = -1
    for _ in range(40):
        await page.keyboard.press("Tab")
        place, tag, outline = await page.evaluate(
            """() => {
              const at = document.activeElement, all = [...document.querySelectorAll("*")];
              const style = getComputedStyle(at);
              return [all.indexOf(at), at.outerHTML.slice(0, 90), style.outlineStyle + style.outlineWidth];
            }"""
        )
        if place <= last:  # it began again at the top, or left the page
            break
        last = place
        seen.add(tag)
        if outline in ("none0px", "auto0px") or outline.endswith(" 0px"):
            unseen.append(tag)
    assert len(seen) > 12
    assert unseen == []


async def test_a_confirmation_is_answered_with_the_keyboard(page: Page, story: Story) -> None:
    job = await story.task("nightly_report").using(delay="1h").aenqueue("2026-11-09")
    await page.goto(f"{story.url}/jobs/{job.id}")
    await page.get_by_role("button", name="Cancel").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("dialog#confirm")).to_be_visible()
    # The safe answer has the focus, and keeps the job.
    await page.keyboard.press("Enter")
    assert await story.state(job) == "scheduled"
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status").filter(has_text="The job is cancelled")).to_be_visible()
    assert await story.state(job) == "cancelled"
