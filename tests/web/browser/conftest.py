"""One browser, one database and one dashboard for all browser tests. Each test has a page of its own.

A page that logs an error, or does what its content security policy forbids, fails its test.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect
from psycopg.conninfo import make_conninfo
from web.browser.chromium import FLAGS, MISSING, find
from web.browser.story import Story, told

from tests.databases import create_database, drop_database

SHOTS = os.environ.get("STEPWELL_SCREENSHOTS")
"""Where `make screenshots` wants the images; nothing else makes any."""
if not SHOTS:
    collect_ignore = ["test_screenshots.py"]

# A page is late on a machine that also runs all other tests. Playwright itself would wait for five seconds.
_PATIENCE_MS = 60_000
expect.set_options(timeout=_PATIENCE_MS)

NewPage: TypeAlias = "Callable[..., Awaitable[Page]]"
"""Opens a page: `await new_page(dark=True, width=390)`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-view", action="store_true", help="make screenshots of every view, as a whole, to look at")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            # All of them share the browser, which lives in one event loop.
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="session")
def shop_dsn(server: psycopg.Connection[Any]) -> Iterator[str]:
    name = f"browser{os.getpid()}"
    create_database(server, name)
    yield make_conninfo(os.environ["STEPWELL_TEST_SERVER"], dbname=name)
    drop_database(server, name)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:

    path = find()
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def story(browser: Browser, shop_dsn: str) -> AsyncIterator[Story]:
    async with told(shop_dsn, rounds=58 if SHOTS else 3) as story:
        yield story


@pytest_asyncio.fixture(loop_scope="session")
async def new_page(browser: Browser) -> AsyncGenerator[NewPage]:
    complaints: list[str] = []
    async with AsyncExitStack() as contexts:

        async def make(*, dark: bool = False, width: int = 1280, height: int = 800, **options: Any) -> Page:
            context = await contexts.enter_async_context(
                await browser.new_context(
                    color_scheme="dark" if dark else "light",
                    viewport={"width": width, "height": height},
                    reduced_motion="reduce",
                    **options,
                )
            )
            context.set_default_timeout(_PATIENCE_MS)
            page = await context.new_page()
            page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
            page.on("console", lambda said: complaints.append(said.text) if is_complaint(said) else None)
            return page

        yield make
    assert complaints == []


def is_complaint(said: Any) -> bool:
    """Errors of scripts and of the content security policy. That a page was not found is no such error."""
    return said.type in ("error", "warning") and not said.text.startswith("Failed to load resource")


@pytest_asyncio.fixture(loop_scope="session")
async def page(new_page: NewPage) -> Page:
    return await new_page()
