"""A person stops what runs: a bulk operation halfway, and a real worker with a job in progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from playwright.async_api import Locator, Page, expect
from waiting import Heard, auntil
from web.browser.story import Story
from web.browser.test_acts import said

from stepwell import App, Task, Worker
from stepwell.postgres import queries
from stepwell.telemetry.jobs import JobClaimed
from stepwell.telemetry.worker import PauseChanged

CHUNK = 500
"""The jobs of a bulk operation that are changed in one transaction."""


@asynccontextmanager
async def one_chunk_only(story: Story) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
    """Make the pause after each chunk of a bulk operation an hour long, so that it is halfway for as long as needed."""
    async with await psycopg.AsyncConnection.connect(story.app.dsn, autocommit=True) as conn:
        await conn.execute(
            "create function public.pause_for_an_hour() returns trigger language plpgsql as"
            " $$begin new.next_at := clock_timestamp() + interval '1 hour'; return new; end$$"
        )
        await conn.execute(
            "create trigger pauses before update on stepwell.bulk for each row when (new.done > 0)"
            " execute function public.pause_for_an_hour()"
        )
        try:
            yield conn
        finally:
            await conn.execute("drop function public.pause_for_an_hour() cascade")


@pytest.mark.parametrize("where", ["its page", "the list"])
async def test_a_bulk_operation_is_stopped_halfway(page: Page, story: Story, where: str) -> None:
    queue, number = f"halfway, from {where}", CHUNK + 200
    await story.task("nightly_report").using(queue=queue, delay="1h").aenqueue_many([{"day": "x"}] * number)
    async with one_chunk_only(story) as conn:
        await page.goto(f"{story.url}/jobs/bulk?act=cancel&queue={queue}")
        await page.get_by_label(f"Type {number} to confirm").fill(str(number))
        await page.get_by_role("button", name=f"Cancel {number} jobs").click()
        await said(page, "has started")
        await expect(page.locator("#progress")).to_contain_text(f"{CHUNK} of {number}")
        await expect(page.locator("#progress progress")).to_have_attribute("value", str(CHUNK))
        await expect(page.locator("#bulk-state")).to_have_text("running")
        bulk = page.url.rpartition("/")[2].partition("?")[0]
        shown = page.locator("main")
        if where == "the list":
            await page.goto(f"{story.url}/jobs?queue={queue}")
            shown = page.locator(f"#bulk-{bulk}")
            await expect(shown).to_contain_text(f"{CHUNK} of {number}")
        await shown.get_by_role("button", name="Stop").click()
        await said(page, "It is stopped. The jobs that were changed stay changed.")
        if where == "the list":
            await expect(shown).to_have_count(0)
            await page.goto(f"{story.url}/bulk/{bulk}")
        await expect(page.locator("#bulk-state")).to_have_text("stopped")
        await expect(page.locator("#progress")).to_contain_text(f"{CHUNK} of {number}")
        await expect(page.locator("dt:text-is('Changed') + dd")).to_contain_text(f"{CHUNK} cancelled {CHUNK}")
        await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        # It would go on now if it had only paused.
        await conn.execute("alter table stepwell.bulk disable trigger pauses")
        await conn.execute("update stepwell.bulk set next_at = now() where id = %s", (bulk,))
        [chunk] = await story.app.database.afetch(queries.bulk.chunk(bulk))
        assert (chunk.id, chunk.state) == (None, "stopped")
        states = await conn.execute(
            "select state::text, count(*) from stepwell.jobs where queue = %s group by 1 order by 1", (queue,)
        )
        assert await states.fetchall() == [("cancelled", CHUNK), ("scheduled", number - CHUNK)]
    await story.app.acancel_jobs(queue=queue)


class Depot:
    """A second worker beside that of the shop. Its job runs until `let_go`."""

    def __init__(self, app: App, worker: Worker, job: Task[[], Any], let_go: asyncio.Event) -> None:
        self.app, self.worker, self.job, self.let_go = app, worker, job, let_go
        self.heard = Heard(worker)

    def card(self, page: Page) -> Locator:
        assert self.worker.id
        return page.locator(f"#worker-{self.worker.id}")


@asynccontextmanager
async def depot(story: Story) -> AsyncGenerator[Depot]:
    app = App(story.app.dsn, name="depot")
    let_go = asyncio.Event()

    @app.task(queue="depot")
    async def unload() -> str:
        await let_go.wait()
        return "unloaded"

    async with app, Worker(app, queues=["depot"]) as worker:
        try:
            yield Depot(app, worker, unload, let_go)
        finally:
            let_go.set()


async def test_a_quiet_worker_claims_nothing_until_it_is_resumed(page: Page, story: Story) -> None:
    async with depot(story) as here:
        await page.goto(f"{story.url}/workers")
        card = here.card(page)
        await expect(card).to_contain_text("alive")
        await card.get_by_role("button", name="Quiet").click()
        await said(page, "The worker claims no more jobs. Those that it runs go on.")
        await expect(card.locator(".badge.warn")).to_have_text("quiet")
        assert (await here.heard.wait_for(PauseChanged)).everything
        job = await here.job.aenqueue()
        await card.get_by_role("button", name="Resume").click()
        await said(page, "The worker claims jobs again.")
        await expect(card).to_contain_text("alive")
        here.let_go.set()
        assert await job.aresult(timeout=60) == "unloaded"
        kinds = [type(event) for event in here.heard.events if isinstance(event, PauseChanged | JobClaimed)]
        assert kinds == [PauseChanged, PauseChanged, JobClaimed], "it claimed the job while it was quiet"


async def test_a_stopped_worker_finishes_its_job_and_leaves_the_page(page: Page, story: Story) -> None:
    async with depot(story) as here:
        job = await here.job.aenqueue()
        await here.heard.wait_for(JobClaimed)
        await page.goto(f"{story.url}/workers")
        card = here.card(page)
        await expect(card.locator("ul")).to_contain_text("unload")
        await card.get_by_role("button", name="Stop").click()
        await expect(page.locator("#confirm-text")).to_have_text("Have this worker finish its jobs and stop?")
        await page.get_by_role("button", name="Go ahead").click()
        await said(page, "The worker was asked to finish its jobs and stop.")
        await expect(card.locator(".badge.warn")).to_have_text("stopping")
        await expect(card.get_by_role("button")).to_have_count(0)
        await auntil(lambda: here.worker.stopping)
        assert await story.state(job) == "running"
        here.let_go.set()
        assert await job.aresult(timeout=60) == "unloaded"
        await expect(card).to_have_count(0)
        assert not here.worker.stopping, "it has ended"
