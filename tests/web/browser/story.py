"""A small shop with an hour of history: the data that the browser tests and the screenshots show."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from waiting import auntil
from web.site import served

from stepwell import App, Context, Fail, JobHandle, Limit, Retry, Worker
from stepwell.postgres import queries
from stepwell.testing import Clock, adrain
from stepwell.values.histogram import bin_of
from stepwell.web import Dashboard

_CITIES = ["Lisbon", "Oslo", "Turin", "Ghent", "Graz", "Cork", "Lyon"]
_NAMES = ["ada", "grace", "linus", "guido", "barbara", "edsger", "margaret"]


class CardDeclined(Exception):
    """The bank refuses."""

    __module__ = "shop.payments"


class Unreachable(ConnectionError):
    """Another service does not answer."""

    __module__ = "shop.mail"


@dataclass
class Address:
    city: str
    street: str = ""


@dataclass
class Parcel:
    order: int
    to: Address


@dataclass
class Story:
    """The shop while its worker runs. `url` is that of the dashboard, `ids` are those of jobs that views show."""

    app: App
    url: str = ""
    ids: dict[str, str] = field(default_factory=dict[str, str])
    let_go: asyncio.Event = field(default_factory=asyncio.Event)

    def task(self, name: str) -> Any:
        return self.app.tasks[name]

    async def state(self, job: JobHandle[Any]) -> str:
        info = await job.ainfo()
        assert info is not None
        return info.state


def make_shop(dsn: str) -> Story:
    app = App(dsn, name="shop", retry=Retry(max_attempts=3, initial="40s"))
    story = Story(app)

    @app.task(queue="mail")
    async def send_receipt(order: int, to: str, language: Literal["en", "pt", "no"] = "en") -> None:
        await asyncio.sleep(random.uniform(0.002, 0.02))
        if order % 97 == 0:
            raise Unreachable("smtp.example.com:587 did not answer within 10 s")

    @app.task(queue="payments", timeout="30s", retry=Retry(max_attempts=4, never_on=(CardDeclined,)))
    async def charge_card(order: int, cents: int, currency: str = "EUR") -> dict[str, Any]:
        await asyncio.sleep(random.uniform(0.01, 0.05))
        if order % 23 == 0:
            raise CardDeclined(f"the bank declined the card of order {order}: insufficient funds")
        return {"charge": f"ch_{order:06}", "cents": cents}

    @app.task(queue="media")
    def resize_image(path: str, width: int) -> str:
        return f"{path}@{width}"

    @app.task(queue="payments")
    async def checkout(ctx: Context, order: int) -> str:
        await ctx.step(reserve, order)
        await ctx.step(price, order)
        await ctx.sleep("2m")
        approved = await ctx.receive("approved", timeout="2d")
        await ctx.step(ship, order)
        return str(approved.value)

    async def reserve(order: int) -> dict[str, Any]:
        await asyncio.sleep(0.03)
        return {"items": order % 4 + 1, "warehouse": _CITIES[order % 7]}

    async def price(order: int) -> dict[str, int]:
        await asyncio.sleep(0.012)
        return {"cents": order * 35 % 20000, "tax": 23}

    async def ship(order: int) -> str:
        return f"parcel-{order}"

    @app.task(queue="mail")
    async def book_courier(parcel: Parcel, at: datetime, notes: list[str] | None = None) -> None: ...

    @app.task(queue="media", limit=Limit(1, key="catalog"))
    async def import_catalog(ctx: Context, supplier: str) -> int:
        ctx.progress(340, 1200, f"reading {supplier}.csv")
        await story.let_go.wait()
        return 1200

    @app.schedule("30 2 * * *", name="nightly report", args={"day": "yesterday"}, tz="Europe/Lisbon")
    @app.task(queue="reports")
    async def nightly_report(day: str) -> None: ...

    @app.schedule("5m", name="stock", args={"warehouse": "Oslo"})
    @app.schedule("0 7 * * mon", name="stock of Ghent", args={"warehouse": "Ghent"}, tz="Europe/Paris")
    @app.task
    async def sync_stock(warehouse: str) -> int:
        await asyncio.sleep(random.uniform(0.005, 0.03))
        if warehouse == "Cork":
            raise Fail("warehouse Cork has no feed")
        return len(warehouse)

    _ = send_receipt, charge_card, resize_image, checkout, book_courier, import_catalog, nightly_report, sync_stock
    return story


@asynccontextmanager
async def told(dsn: str, rounds: int) -> AsyncGenerator[Story]:
    """Play the hour before now in so many rounds, then serve the dashboard while a worker runs."""
    random.seed(7)
    story = make_shop(dsn)
    app = story.app
    async with app:
        start = datetime.now(UTC) - timedelta(minutes=59)
        async with Clock(app, at=start) as clock:
            for number in range(rounds):
                await _round(story, number, rounds)
                await clock.set(start + (number + 1) * timedelta(minutes=59) / rounds)
            # Jobs are counted when their ids are half a minute old, and the time in an id is the real one.
            await clock.set(datetime.now(UTC) + timedelta(minutes=1))
            await app.database.afetch(queries.upkeep.count_enqueued(100_000))
        await _correct(app)
        async with Worker(app, queues=["mail", "payments", "media", "default"], concurrency=20):
            await _present(story)
            with served(Dashboard(app, redact=["password"])) as site:
                story.url = f"http://127.0.0.1:{site.port}"
                yield story
            story.let_go.set()


async def _round(story: Story, number: int, rounds: int) -> None:
    """Some minutes of a day in a shop: more at noon, and a bad moment."""
    busy = 10 + int(14 * (1 - abs(2 * number / rounds - 1))) + random.randrange(6)
    first = 48200 + number * 60
    orders = range(first, first + busy)
    await _enqueue(story, "send_receipt", ({"order": n, "to": f"{_NAMES[n % 7]}@example.com"} for n in orders))
    await _enqueue(story, "charge_card", ({"order": n, "cents": n * 7 % 9000 + 400} for n in orders[::2]))
    await _enqueue(story, "resize_image", ({"path": f"products/{n}.png", "width": 640} for n in orders[::3]))
    await _enqueue(story, "sync_stock", [{"warehouse": _CITIES[number % 7]}])
    if number == rounds - 2:
        approve = await story.task("checkout").using(metadata={"customer": "ada"}).aenqueue(48291)
        story.ids["waiting"] = str(approve.id)
    # A worker for each round, because a worker writes what it has counted at its end.
    await adrain(story.app)


async def _correct(app: App) -> None:
    """Make up what a stopped clock cannot tell: how long jobs had waited, which is told by the clock of the machine,
    and that of steps with the same time one ran after the other."""
    async with app.database.aconnection() as connection:
        found = await connection.execute("select minute, task, queue, waits from stepwell.stat where waits is not null")
        for minute, task, queue, waits in await found.fetchall():
            made = [0] * len(waits)
            for _ in range(sum(waits)):
                made[bin_of(random.lognormvariate(-4.5, 0.9))] += 1
            await connection.execute(
                "update stepwell.stat set waits = %s::integer[] where minute = %s and task = %s and queue = %s",
                (made, minute, task, queue),
            )
        await connection.execute(
            """
            update stepwell.step s
            set saved_at = s.saved_at - interval '1 second' * (
              select coalesce(sum(o.seconds), 0) from stepwell.step o
              where o.job_id = s.job_id and o.n > s.n and o.saved_at = s.saved_at
            )
            where s.kind = 'step'
            """
        )
        # The sums are made again from these counters.
        await connection.execute("delete from stepwell.stat_sum")
        await connection.execute(
            "update stepwell.stat_progress set minutes_to = null, fives_to = null, hours_to = null, quarters_to = null"
        )


async def _enqueue(story: Story, task: str, calls: Iterable[dict[str, Any]]) -> None:
    await story.task(task).aenqueue_many(list(calls))


async def _present(story: Story) -> None:
    """What is going on now: a job in each state."""
    catalog = story.task("import_catalog")
    running, blocked = await catalog.aenqueue("northwind"), await catalog.aenqueue("globex")
    for days in (1, 2, 3):
        await story.task("nightly_report").aenqueue(f"2026-11-0{days}")
    for minutes in (4, 25, 90):
        later = story.task("send_receipt").using(delay=f"{minutes}m")
        await later.aenqueue(49000 + minutes, "ada@example.com", "pt")
    gone = await story.task("resize_image").using(delay="1h").aenqueue("products/none.png", 64)
    await gone.acancel("the product was withdrawn")
    for name, filters in {
        "declined cards": {"state": "failed", "task": "charge_card"},
        "slowest payments": {"state": "succeeded", "queue": "payments", "sort": "runtime"},
    }.items():
        await story.app.database.afetch(queries.saved_views.save_view(name, filters, "ada"))
    await auntil(lambda: _is(story, running, "running"))
    await auntil(lambda: _is(story, blocked, "blocked"))
    found = await story.app.ajobs(state="failed", limit=100)
    failed = next((job for job in found if job.task == "charge_card"), found[0])
    story.ids |= {"running": str(running.id), "blocked": str(blocked.id), "failed": str(failed.id)}


async def _is(story: Story, job: JobHandle[Any], state: str) -> bool:
    return await story.state(job) == state
