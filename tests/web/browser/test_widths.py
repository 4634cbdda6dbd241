"""Tables that are as full as they can be fit every window: nothing covers anything else, and nothing is cut off."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from playwright.async_api import Page
from psycopg.conninfo import make_conninfo
from web.browser.conftest import NewPage
from web.browser.full import ID, SOLID, SPACED, full
from web.browser.test_views import violations
from web.site import PAGES

from tests.databases import create_database, drop_database

WIDTHS = [320, 390, 761, 900, 1024, 1180, 1440]
DETAILS = [
    "/views",
    "/bulk",
    f"/bulk/{ID}",
    f"/jobs/{ID}",
    f"/failures/{ID}",
    "/jobs?state=failed&sort=runtime",
    "/jobs/bulk?act=retry&state=failed",
    *(f"{path}?{urlencode({'name': name})}" for path in ("/queues", "/tasks") for name in (SOLID, SPACED)),
    *(f"/schedules?{urlencode({'owner': name, 'name': name})}" for name in (SOLID, SPACED)),
]


@cache
def script() -> str:
    return (Path(__file__).parent / "faults.js").read_text()


@pytest.fixture(scope="module")
def crowded(server: psycopg.Connection[Any]) -> Iterator[str]:
    name = f"full{os.getpid()}"
    create_database(server, name)
    with full(make_conninfo(os.environ["STEPWELL_TEST_SERVER"], dbname=name)) as url:
        yield url
    drop_database(server, name)


async def faults(page: Page, url: str, widths: list[int]) -> list[str]:
    """What is wrong with a page at some widths, with all of it open and all rows selected."""
    answer = await page.goto(url)
    assert answer is not None
    assert answer.ok
    await page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    await page.evaluate("document.querySelectorAll('input[name=id]').forEach((each) => each.click())")
    # It is above the rows on purpose.
    await page.evaluate("document.querySelectorAll('.selected').forEach((each) => (each.style.position = 'static'))")
    found: list[str] = []
    for width in widths:
        await page.set_viewport_size({"width": width, "height": 900})
        # Tables are arranged after a frame has told them of their place.
        await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        found += [f"{width}: {fault}" for fault in await page.evaluate(script())]
    return found


async def test_a_full_page_fits_a_phone_and_a_desk(page: Page, crowded: str) -> None:
    found = {path: await faults(page, crowded + path, [320, 1024, 1180]) for path in PAGES}
    assert {path: some for path, some in found.items() if some} == {}


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", [*PAGES, *DETAILS], ids=lambda path: path[:30])
async def test_a_full_page_fits_every_window(new_page: NewPage, crowded: str, path: str, theme: str) -> None:
    page = await new_page(dark=theme == "dark")
    assert await faults(page, crowded + path, WIDTHS) == []
    for width in (390, 1024):
        await page.set_viewport_size({"width": width, "height": 900})
        assert await violations(page) == []
