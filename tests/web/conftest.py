"""One database and one server for all tests of a module. Tests use queues and names of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pytest
from web.site import HOSTILE, Site, served

from stepwell import App, Context, Done, Fail
from stepwell.web import Dashboard


@pytest.fixture(scope="module")
def shop(module_dsn: str) -> Iterator[App]:
    app = App(module_dsn, name="shop")

    @app.task
    async def greet(name: str, times: int = 1, tone: Literal["warm", "cold"] = "warm") -> str:
        if name == HOSTILE:
            raise Fail(HOSTILE)
        return f"hello {name}"

    @app.task
    async def approve(ctx: Context, order: int) -> str:
        await ctx.step(price, order)
        return str((await ctx.receive("approved")).value)

    async def price(order: int) -> dict[str, int]:
        return {"price": order * 100}

    @app.task
    async def parent(ctx: Context, order: int) -> None:
        await ctx.spawn(approve, order)

    lamp = app.machine("lamp")

    @lamp.state(start=True)
    @dataclass
    class Off:  # pyright: ignore[reportUnusedClass]
        watts: int

        async def run(self) -> Done[int]:
            return Done(self.watts)

    yield app
    app.close()


@pytest.fixture(scope="module")
def site(shop: App) -> Iterator[Site]:
    with served(Dashboard(shop, redact=["password"])) as found:
        yield found
