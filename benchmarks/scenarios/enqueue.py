"""How fast jobs go in: one by one, side by side, many at once, and beside a write of one's own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from benchmarks.run import BARE, Run
from stepwell import App, Task
from stepwell.postgres.queries.arrays import texts

# With ids from the same source as ours, so that the difference is what the engine costs.
_INSERT = """
    insert into stepwell.job (id, run_at, enqueued_at, rank, state, task, queue, args)
    select u.id, now(), now(), 0, 'ready', 'greet', 'default', u.args::json
    from (select %s::text[] as args) given,
      unnest(stepwell.uuids7(cardinality(given.args)), given.args) as u (id, args)
"""
_SIDE_BY_SIDE = 100


def enqueue(run: Run) -> None:
    """Each way beside the same rows by a bare `insert ... select unnest`."""
    one, side_by_side, many = (300, 3_000, 20_000) if run.quick else (1_000, 20_000, 50_000)
    rates: dict[str, list[float]] = {}

    async def rounds() -> None:
        for _ in range(run.rounds):
            with run.stage(BARE) as stage:
                await _measure(stage.dsn, rates, one, side_by_side, many)

    asyncio.run(rounds())
    run.record("enqueue", "one by one", rates["one"], "jobs/s", "bare insert", rates["bare one"])
    run.record(
        "enqueue", f"{_SIDE_BY_SIDE} side by side", rates["side"], "jobs/s", "one by one", rates["one"], at_least=5
    )
    run.record("enqueue", f"{_SIDE_BY_SIDE} side by side", rates["side"], "jobs/s", "bare, by 100", rates["bare side"])
    run.record(
        "enqueue", f"enqueue_many of {many:,}", rates["many"], "jobs/s", "bare insert", rates["bare many"], at_least=0.7
    )
    run.record("enqueue", "in a transaction of one's own", rates["tx"], "jobs/s", "bare insert", rates["bare tx"])


async def _measure(dsn: str, rates: dict[str, list[float]], one: int, side_by_side: int, many: int) -> None:
    async def keep(name: str, jobs: int, work: Callable[[], Awaitable[object]]) -> None:
        began = time.perf_counter()
        await work()
        rates.setdefault(name, []).append(jobs / (time.perf_counter() - began))

    async with App(dsn) as app, await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        greet = app.task(name="greet")(_greet)
        await connection.execute("create table written (n integer)")
        # The connection that a caller has is open already: so is the app's.
        await greet.aenqueue(0)
        numbers = [{"n": n} for n in range(many)]
        encoded = texts([json.dumps(number) for number in numbers])
        await keep("bare one", one, lambda: _bare_one(connection, one))
        await keep("one", one, lambda: _one_by_one(greet, one))
        await keep("bare side", side_by_side, lambda: _bare_batches(connection, side_by_side))
        await keep("side", side_by_side, lambda: _side_by_side(greet, side_by_side))
        await keep("bare many", many, lambda: connection.execute(_INSERT, (encoded,)))
        await keep("many", many, lambda: greet.aenqueue_many(numbers))
        await keep("bare tx", one, lambda: _bare_transactions(connection, one))
        await keep("tx", one, lambda: _transactions(connection, greet, one))


async def _greet(n: int) -> None:
    """Nothing runs here: the jobs are only put in."""


async def _one_by_one(task: Task[[int], None], jobs: int) -> None:
    for n in range(jobs):
        await task.aenqueue(n)


async def _bare_one(connection: psycopg.AsyncConnection[Any], jobs: int) -> None:
    for n in range(jobs):
        await connection.execute(_INSERT, ([f'{{"n":{n}}}'],))


async def _side_by_side(task: Task[[int], None], jobs: int) -> None:
    await asyncio.gather(*(_one_by_one(task, jobs // _SIDE_BY_SIDE) for _ in range(_SIDE_BY_SIDE)))


async def _bare_batches(connection: psycopg.AsyncConnection[Any], jobs: int) -> None:
    batch = texts([f'{{"n":{n}}}' for n in range(_SIDE_BY_SIDE)])
    for _ in range(jobs // _SIDE_BY_SIDE):
        await connection.execute(_INSERT, (batch,))


async def _transactions(connection: psycopg.AsyncConnection[Any], task: Task[[int], None], jobs: int) -> None:
    for n in range(jobs):
        async with connection.transaction():
            await connection.execute("insert into written values (%s)", (n,))
            await task.using(connection=connection).aenqueue(n)


async def _bare_transactions(connection: psycopg.AsyncConnection[Any], jobs: int) -> None:
    for n in range(jobs):
        async with connection.transaction():
            await connection.execute("insert into written values (%s)", (n,))
            await connection.execute(_INSERT, ([f'{{"n":{n}}}'],))
