"""Let so many jobs wait, each for an event of its own, then emit one at a time, each when the one before was heard."""

from __future__ import annotations

import asyncio
import itertools
import sys

import psycopg
import uvloop
from program import DSN, PATIENCE, aping_each
from tasks import app, woken

WAITING = "select count(*) from stepwell.job where task = 'woken' and state = 'waiting'"


async def main(jobs: int) -> None:
    """The time of emission travels as the event's value."""
    names = [f"event {n}" for n in range(jobs)]
    async with app:
        await woken.aenqueue_many([{"name": name} for name in names])
        async with asyncio.timeout(PATIENCE), await psycopg.AsyncConnection.connect(DSN, autocommit=True) as connection:
            while await (await connection.execute(WAITING)).fetchone() != (jobs,):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        numbers = itertools.count()
        await aping_each(jobs, lambda sent: app.aemit(names[next(numbers)], value=sent))


uvloop.run(main(int(sys.argv[1])))
