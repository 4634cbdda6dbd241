"""Every view of the dashboard. A new page is added here, or to PAGES of `web.site`, and all tests of views see it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from web.browser.story import Story
from web.site import PAGES


@dataclass(frozen=True)
class View:
    """A page as a browser shows it. `{name}` in the path is the id of that job of the story."""

    name: str
    path: str

    def url(self, story: Story) -> str:
        return story.url + self.path.format_map(story.ids)


def _named(path: str) -> View:
    return View(path.strip("/").replace("/", "-") or "overview", path)


VIEWS = [
    *map(_named, PAGES),
    View("jobs-filtered", "/jobs?state=failed&task=charge_card"),
    View("jobs-none", "/jobs?queue=nothing"),
    View("jobs-sorted", "/jobs?state=succeeded&sort=runtime"),
    View("views", "/views"),
    View("job-durable", "/jobs/{waiting}"),
    View("job-failed", "/jobs/{failed}"),
    View("job-running", "/jobs/{running}"),
    View("job-blocked", "/jobs/{blocked}"),
    View("queue", "/queues?name=mail"),
    View("schedule", f"/schedules?owner=shop&name={quote('nightly report')}"),
    View("enqueue", "/tasks/enqueue?task=send_receipt"),
    View("enqueue-structured", "/tasks/enqueue?task=book_courier"),
    View("clone", "/tasks/enqueue?task=charge_card&like={failed}"),
    View("task", "/tasks?name=send_receipt"),
    View("jobs-bulk", "/jobs/bulk?act=retry&state=failed"),
    View("bulk", "/bulk"),
    View("overview-day", "/?range=1d"),
    View("not-found", "/nowhere"),
]
