"""The images in README.md and docs: `make screenshots` makes them, from the story that the other tests use."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from web.browser.conftest import SHOTS, NewPage
from web.browser.story import Story
from web.browser.views import VIEWS

# In docs are those of the names here; the option --every-view makes one of every view, to look at.
_IN_DOCS = ["overview", "job-durable"]
_WIDTH, _HEIGHT = 1180, 720


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", ["desk", "phone"])
async def test_views_are_drawn(
    new_page: NewPage, story: Story, theme: str, size: str, request: pytest.FixtureRequest
) -> None:
    assert SHOTS
    phone = size == "phone"
    page = await new_page(dark=theme == "dark", width=390 if phone else _WIDTH, height=844 if phone else _HEIGHT)
    every = request.config.getoption("--every-view")
    for view in VIEWS:
        if not every and view.name not in (["jobs"] if phone else _IN_DOCS):
            continue
        await page.goto(view.url(story))
        if view.name.startswith("job-") and not phone:
            tall = await page.evaluate("document.documentElement.scrollHeight")
            await page.set_viewport_size({"width": _WIDTH, "height": tall})
        await page.locator(".live.on").wait_for()
        name = f"dashboard-{view.name}{'-phone' if phone else ''}-{theme}.png"
        await page.screenshot(path=Path(SHOTS) / name, full_page=every)
        shrink(Path(SHOTS) / name)
        if not phone:
            await page.set_viewport_size({"width": _WIDTH, "height": _HEIGHT})


def shrink(image: Path) -> None:
    """A third of the size. All colours are kept, also the rare ones of the states."""
    drawn = Image.open(image).convert("RGB")
    drawn.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE).save(
        image, optimize=True
    )
