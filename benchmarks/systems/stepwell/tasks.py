"""The app whose jobs are measured."""

from __future__ import annotations

import asyncio
import logging
import os
import time

import plugins
from program import DSN, open_tally

from stepwell import App, Context, GroupSummary, Limit, Rate, Retry

app = App(DSN, plugins=plugins.chosen())
tally = open_tally()


@app.task
async def noop() -> None:
    """Nothing."""
    tally.hit()


@app.task
async def grouped(summary: GroupSummary) -> None:
    """The callback of a group. It is no hit: its members are counted."""


@app.task
async def echo(text: str) -> str:
    """Args that go in, and a result that comes out."""
    tally.hit()
    return text


@app.task
def plain() -> None:
    """Nothing, in a thread."""
    tally.hit()


@app.task(process=True)
def apart() -> None:
    """Nothing, in a process."""
    tally.hit()


if os.environ.get("BENCH_TASK") == "batched":  # so that the other measurements are of an app without batches

    @app.task(batch=100)
    async def batched(numbers: list[int]) -> None:
        """Nothing, for all of them."""
        tally.hit(len(numbers))


@app.task
async def nap() -> None:
    """Hold a slot."""
    tally.hit()
    await asyncio.sleep(3600)


@app.task
async def answer(sent: int) -> None:
    """Say how long it took to get here."""
    tally.hit_after(sent)


async def nothing() -> None:
    """A step that costs no more than being one."""


async def take_steps(ctx: Context, steps: int) -> None:
    """So many steps, one after the other."""
    for _ in range(steps):
        await ctx.step(nothing)


@app.task
async def five_steps(ctx: Context) -> None:
    """What the peers are given, too."""
    tally.hit()  # first: the clock runs from here
    await take_steps(ctx, 5)


@app.task
async def ten_steps(ctx: Context) -> None:
    """The durable function that is measured."""
    tally.hit()
    await take_steps(ctx, 10)


@app.task
async def sleeper(ctx: Context) -> None:
    """Sleep without a slot."""
    tally.hit()
    await ctx.sleep("1d")


@app.task
async def woken(ctx: Context, name: str) -> None:
    """Say how long it took from the event to here."""
    event = await ctx.wait_for(name)
    tally.hit_after(event.value)


AS_MEANT = "as meant"
logging.getLogger("stepwell").addFilter(lambda record: AS_MEANT not in record.getMessage())


@app.task
async def late() -> int:
    """Say when it began, in microseconds of the clock by which it was due."""
    return time.time_ns() // 1000


@app.task(retry=Retry(backoff="fixed", initial=0, jitter=0))
async def replayed(ctx: Context) -> None:
    """Ten steps, and an error after them: the second attempt finds all of them saved."""
    await take_steps(ctx, 10)
    if ctx.attempt == 1:
        raise ValueError(AS_MEANT)


@app.task(retry=Retry(backoff="fixed", initial="500ms", jitter=0))
async def late_again(ctx: Context) -> int:
    """The same, of the second attempt."""
    began = time.time_ns() // 1000
    if ctx.attempt == 1:
        raise ValueError(AS_MEANT)
    return began


@app.task(limit=Limit(2, key="{key}"))
async def by_key(key: int) -> None:  # noqa: ARG001
    """One of a thousand keys."""
    tally.hit()


@app.task(limit=Limit(100, key="all"))
async def hundred_at_once() -> None:
    """One key for all."""
    tally.hit()


@app.task(limit=Limit(1, key="all"))
async def one_at_once() -> None:
    """One after the other."""
    tally.hit()


@app.task(rate=Rate(1000, per="1s", burst=50, key="api"))
async def rated() -> None:
    """A thousand a second."""
    tally.hit()


@app.task(rate=Rate(50, per="1s", smooth=True))
async def smooth() -> None:
    """Fifty a second, evenly spaced."""
    tally.hit()


@app.task(fair="{key}")
async def in_turn(key: int) -> None:  # noqa: ARG001
    """One of a hundred tenants."""
    tally.hit()


@app.task(fair="{tenant}")
async def visit(tenant: str, sent: int = 0) -> None:  # noqa: ARG001
    """Hold a slot for as long as a query takes. `sent`: how long did it take to get here?"""
    if sent:
        tally.hit_after(sent)
    else:
        tally.hit()
    await asyncio.sleep(0.02)
