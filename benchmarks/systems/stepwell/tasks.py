"""The app whose jobs are measured."""

from __future__ import annotations

import asyncio

from program import DSN, open_tally

from stepwell import App

app = App(DSN)
tally = open_tally()


@app.task
async def noop() -> None:
    """Nothing."""
    tally.hit()


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


@app.task
async def nap() -> None:
    """Hold a slot."""
    tally.hit()
    await asyncio.sleep(3600)


@app.task
async def answer(sent: int) -> None:
    """Say how long it took to get here."""
    tally.hit_after(sent)
