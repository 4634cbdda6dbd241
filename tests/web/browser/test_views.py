"""Every view in both themes: it is accessible, obeys its content security policy, and fits a phone."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page
from web.browser.conftest import NewPage
from web.browser.story import Story
from web.browser.views import VIEWS, View

PHONE = 390


@cache
def axe() -> str:
    return (Path(__file__).parent / "axe.min.js").read_text()


async def violations(page: Page, only: list[str] | None = None) -> list[str]:
    """What axe finds. It is evaluated, not loaded by the page, so that the content security policy stays on."""
    await page.evaluate(axe())
    options = {"resultTypes": ["violations"], **({"runOnly": only} if only else {})}
    found: dict[str, Any] = await page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{rule['id']}: {node['html']} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"][:3]
    ]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
async def test_axe_has_nothing_to_object_to(new_page: NewPage, story: Story, view: View, theme: str) -> None:
    page = await new_page(dark=theme == "dark")
    await page.goto(view.url(story))
    # The themes differ in nothing but their colours.
    assert await violations(page, ["color-contrast"] if theme == "dark" else None) == []


@pytest.mark.parametrize("dialog", ["help", "palette", "confirm"])
async def test_axe_has_nothing_to_object_to_in_a_dialog(page: Page, story: Story, dialog: str) -> None:
    await page.goto(f"{story.url}/jobs/{story.ids['running']}")
    if dialog == "confirm":
        await page.get_by_role("button", name="Cancel").click()
    else:
        await page.keyboard.press("?" if dialog == "help" else "Control+k")
    await page.locator(f"dialog#{dialog}[open]").wait_for()
    assert await violations(page) == []


@pytest.mark.parametrize("width", [PHONE, 1180])
async def test_no_view_scrolls_sideways(new_page: NewPage, story: Story, width: int) -> None:
    phone = width == PHONE
    page = await new_page(width=width, height=844, has_touch=phone, is_mobile=phone)
    too_wide: dict[str, int] = {}
    for view in VIEWS:
        await page.goto(view.url(story))
        found = await page.evaluate("document.documentElement.scrollWidth")
        if found > width:
            too_wide[view.name] = found
    assert too_wide == {}


async def test_a_chosen_theme_is_kept(page: Page, story: Story) -> None:
    async def background() -> str:
        return await page.evaluate("getComputedStyle(document.body).backgroundColor")

    await page.goto(story.url)
    light = await background()
    await page.get_by_role("button", name="Change the theme").click()
    dark = await background()
    assert dark != light
    await page.goto(f"{story.url}/queues")
    assert await background() == dark
