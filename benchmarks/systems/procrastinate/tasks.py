"""The app whose jobs are measured."""

from __future__ import annotations

from procrastinate import App, PsycopgConnector
from program import DSN, open_tally

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
