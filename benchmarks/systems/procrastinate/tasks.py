"""The app whose jobs are measured."""

from __future__ import annotations

import asyncio

import uvloop
from procrastinate import App, PsycopgConnector
from program import DSN, open_tally

# Not in its documentation, but the others have it.
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
app = App(connector=PsycopgConnector(conninfo=DSN))
tally = open_tally()


@app.task
async def noop() -> None:
    """Nothing."""
    tally.hit()


@app.task
async def answer(sent: int) -> None:
    """Say how long it took to get here."""
    tally.hit_after(sent)
